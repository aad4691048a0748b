"""How a server's services are put together, a subject a file: each group is made of the groups before it.

Where a group needs one that is made later, it is given a call that fetches it, and does not call it while it is made.
"""
