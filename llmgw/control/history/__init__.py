"""What the cluster's figures were: one hour by five seconds and one day by the minute, in this server's memory."""
