// README's tour, by the package as it is published: tests/clients/test_build.py runs it.
import { answered, isStep, Refusal, tidings, type Schemas } from '@tidings/client'

declare const process: { argv: string[] }
const [url = '', key = ''] = process.argv.slice(2)
const api = tidings({ url, key })

const template = await answered(api.POST('/templates', {
  body: {
    name: 'Welcome',
    channel: 'email',
    content: {
      subject: 'Welcome, {{contact.firstName | default: "friend"}}',
      html: '<p>You picked <b>{{trigger.data.plan}}</b>.</p>',
    },
  },
}))

const steps: Schemas['Step'][] = [
  {
    type: 'branch',
    cases: [
      {
        when: { path: 'trigger.data.plan', op: 'eq', value: 'pro' },
        steps: [{ type: 'add_tag', tag: 'pro' }],
      },
    ],
  },
  { type: 'send_message', channel: 'email', templateId: template.id },
]
const workflow = await answered(api.POST('/workflows', {
  body: {
    name: 'Welcome',
    state: 'ACTIVE',
    trigger: {
      source: 'inbound_webhook',
      contactLookup: 'email',
      contactPath: 'data.email',
      createContact: true,
      contactDefaults: { firstName: '{{trigger.data.name}}', tags: ['lead'] },
    },
    steps,
  },
}))

const token = workflow.trigger.webhookUrl?.split('/').pop() ?? ''
const receipt = await answered(api.POST('/v1/webhooks/in/{token}', {
  params: { path: { token } },
  body: { data: { email: 'ada@example.com', name: 'Ada', plan: 'pro' } },
}))

const path = { id: receipt.runId }
let run = await answered(api.GET('/runs/{id}', { params: { path } }))
for (let tries = 0; run.status !== 'COMPLETED' && tries < 100; tries++) {
  await new Promise((resolve) => setTimeout(resolve, 100))
  run = await answered(api.GET('/runs/{id}', { params: { path } }))
}

// The trace of the run, each step with what its kind records.
for (const step of run.steps) {
  if (isStep(step, 'branch')) console.log('branch', step.port, step.output?.cases?.[0]?.operands?.[0]?.found)
  else if (isStep(step, 'send_message')) {
    const sent: string | undefined = step.output?.status
    console.log('send_message', sent, step.message?.status)
  } else console.log(step.kind, step.status)
}

const unknown = { params: { path: { id: 'run_00000000000000000000000000' } } }
const refused = await answered(api.GET('/runs/{id}', unknown)).catch((error: unknown) => error)
console.log(refused instanceof Refusal && refused.status, refused instanceof Refusal && refused.problem.code)
