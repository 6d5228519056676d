"""The errors about what is kept beside the processes: archives, and the feed."""

from __future__ import annotations

from progressor.errors.base import ProgressorError


class FeedTruncated(ProgressorError):
    """The feed has not what comes behind `position`: deleted, of another database, or lost in a fail-over.

    Begin anew: forget what was made of it, and read from `beginning`.
    """

    def __init__(
        self,
        position: str,
        why: str,
        advice: str = 'begin anew: forget what was made of it, and read after="beginning"',
    ) -> None:
        super().__init__(f"the feed cannot be read behind position {position}: {why}; {advice}")
        self.position = position


class SubscriptionLost(ProgressorError):
    """A reader of `subscription` cannot commit: another one has its slice, or the subscription is gone.

    So it is if a fail-over lost what was read. Nothing was committed; what was read since the last commit
    comes again, to whoever has the slice.
    """

    def __init__(self, subscription: str, why: str) -> None:
        super().__init__(f"subscription {subscription}: {why}; nothing was committed")
        self.subscription = subscription


class ArchiveUnavailable(ProgressorError):
    """The archive could not be written or read: what was to be archived is kept, and tried again."""

    def __init__(self, namespace: str, why: str) -> None:
        super().__init__(f"the archive of namespace {namespace} failed: {why}")
        self.namespace = namespace


class ArchiveDamaged(ProgressorError):
    """A part of the archive is not what its manifest says; `part` names it. Nothing was deleted for it."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"the part {part} of the archive is damaged: {why}")
        self.part = part
