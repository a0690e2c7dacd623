"""What a client of MQTT wants of jobs."""

from vmq.jobs.options import AddOptions
from vmq.mqtt.message import Message
from vmq.mqtt.special import JobTopic


class Asked:
    """One PUBLISH to jobs."""

    def __init__(self, topic: JobTopic, message: Message, packet_id: int) -> None:
        self.topic = topic
        self.message = message
        self.packet_id = packet_id
        #: What is wrong with its topic; "" if nothing.
        self.flaw = ""
        #: When it has waited long enough, by the core's clock; 0: it does not wait.
        self.deadline = 0.0
        #: The queue of jobs, with the mountpoint in front, and the user who makes it; None: the broker itself.
        self.name = b""
        self.user: str | None = None
        #: What becomes the job: the payload, or more. How it is added; None: as the topic says.
        self.body = message.payload
        self.options: AddOptions | None = None
        #: The topic as plugins see it.
        self.seen = topic.canonical()
