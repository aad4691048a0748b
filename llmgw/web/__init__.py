"""quart-trio applications: the admin app behind admin.sock and loopback TCP, the public app behind public.sock."""
