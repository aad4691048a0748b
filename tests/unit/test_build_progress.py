"""How far an installation is, out of what uv says of its downloads."""

from agent.provision.progress import Progress


def test_what_is_announced_is_to_come_and_what_is_here_is_done() -> None:
    progress = Progress()
    assert progress.words() == ""
    said = ("Resolved 3 packages in 5ms", "Downloading torch (2.0GiB)", "Downloading vllm (400.0MiB)")
    for line in (*said, "Downloading vllm (400.0MiB)"):
        progress.heard(line)
    assert (progress.done, progress.total) == (0, 2 * 2**30 + 400 * 2**20)
    progress.heard("Downloaded vllm")
    progress.heard("Downloaded vllm")
    assert progress.words() == "419 MB of 2.57 GB"
    progress.heard("Downloaded torch")
    assert progress.words() == "", "all of it is here, and something else is done"


def test_what_only_looks_like_it_counts_for_nothing() -> None:
    progress = Progress()
    for line in ("Downloading torch (..GiB)", "Downloading torch", "Downloaded nothing", "x Downloading a (1.0MiB)"):
        progress.heard(line)
    assert (progress.done, progress.total) == (0, 0)
