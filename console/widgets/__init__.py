"""What views are made of. Every line of data is drawn from segments; none of these widgets reads markup."""
