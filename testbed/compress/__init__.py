"""What an update looks like on its way to the parameter server: pure functions on flat vectors."""
