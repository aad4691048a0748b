"""The admin API's contract: types, paths, problems, client, actions registry. Pure: console and ctl import it."""
