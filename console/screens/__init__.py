"""What fills the screen: the frame, the views, the pages opened from them, and the dialogs over them."""
