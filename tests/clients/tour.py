"""README's tour, by the package as it is published: test_build.py runs and checks it."""

from __future__ import annotations

import sys
import time

from tidings_client import AuthenticatedClient, models
from tidings_client.api.runs import get_run
from tidings_client.api.templates import create_template
from tidings_client.api.webhooks import receive_webhook
from tidings_client.api.workflows import create_workflow
from tidings_client.types import Unset


def main(url: str, key: str) -> None:
    client = AuthenticatedClient(url, key)
    content = models.EmailContent(
        subject='Welcome, {{contact.firstName | default: "friend"}}',
        html="<p>You picked <b>{{trigger.data.plan}}</b>.</p>",
    )
    template = create_template.sync(
        client=client,
        body=models.WritableTemplate.from_dict(
            {"name": "Welcome", "channel": "email", "content": content.to_dict()}
        ),
    )
    assert isinstance(template, models.Template), template

    pro = models.AddTagStep.from_dict({"type": "add_tag", "tag": "pro"})
    when = {"path": "trigger.data.plan", "op": "eq", "value": "pro"}
    branch = models.BranchStep.from_dict(
        {"type": "branch", "cases": [{"when": when, "steps": [pro.to_dict()]}]}
    )
    send = models.SendMessageStep.from_dict(
        {"type": "send_message", "channel": "email", "templateId": template.id}
    )
    trigger = models.InboundWebhookTrigger.from_dict(
        {
            "source": "inbound_webhook",
            "contactLookup": "email",
            "contactPath": "data.email",
            "createContact": True,
            "contactDefaults": {"firstName": "{{trigger.data.name}}", "tags": ["lead"]},
        }
    )
    workflow = create_workflow.sync(
        client=client,
        body=models.WritableWorkflow(
            name="Welcome",
            state=models.WritableWorkflowState.ACTIVE,
            trigger=trigger,
            steps=[branch, send],
        ),
    )
    assert isinstance(workflow, models.Workflow), workflow

    assert workflow.trigger.webhook_url is not None
    token = workflow.trigger.webhook_url.rpartition("/")[2]
    data = {"email": "ada@example.com", "name": "Ada", "plan": "pro"}
    receipt = receive_webhook.sync(
        token, client=client, body=models.Event.from_dict({"data": data})
    )
    assert isinstance(receipt, models.Accepted), receipt

    for step in ended(client, receipt.run_id).steps:
        print(traced(step))
    unknown = get_run.sync("run_" + "0" * 26, client=client)
    assert isinstance(unknown, models.Problem)
    print(unknown.status, unknown.code.value)


def ended(client: AuthenticatedClient, id: str) -> models.Run:
    """The run, once it is over."""
    while True:
        run = get_run.sync(id, client=client)
        assert isinstance(run, models.Run), run
        if run.status == "COMPLETED":
            return run
        time.sleep(0.1)


def traced(step: models.RunStep) -> str:
    """The step, with what its kind records."""
    output = {} if step.output is None else step.output.to_dict()
    if step.kind == "branch":
        cases = models.BranchOutput.from_dict(output).cases
        assert not isinstance(cases, Unset)
        operands = cases[0].operands
        assert not isinstance(operands, Unset)
        return f"branch {step.port} {operands[0].found}"
    if step.kind == "send_message" and step.message is not None:
        sent = models.SendMessageOutput.from_dict(output)
        return f"send_message {sent.status} {step.message.status}"
    return f"{step.kind} {step.status}"


if __name__ == "__main__":
    main(*sys.argv[1:])
