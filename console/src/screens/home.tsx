// Home: what needs somebody first, then what happened last; in an empty workspace the first steps.
import { useRef, useState } from 'preact/hooks'
import { api, byId, got } from '../api'
import { useAct, useListed, useLoaded } from '../data'
import { pretty } from '../exact'
import { days, local } from '../days'
import { useCan, useMe } from '../me'
import { page, useFlows, type FlowName } from '../names'
import { go } from '../router'
import { at, has, refusal, unreachable } from '../session'
import { CHANNELS, WAITED_FOR } from '../words'
import { Link, Refused, Screen, Section, Shown, Table, Unread, plural, Press } from '../ui'
import { flowPath } from './flows'
import { useRunTable } from './runs'

export function Home() {
  const me = useMe()
  const all = useFlows()
  const runs = useListed(() => got(api.GET('/runs', { params: { query: { limit: 10 } } })), [], 4000)
  const latest = useRunTable({ ...runs, more: null }, all)
  const made = all.rows?.find(isFirst)
  // In the sandbox also beside the demo's flow: its webhook asks for a signature, which no page can make.
  const isNew = runs.rows?.length === 0 && (all.rows?.length === 0 || !!made || has('sandbox'))
  return (
    <Screen title={me.workspace.name}>
      {all.rows === null || runs.rows === null ? (
        <Unread
          of={{
            problem: all.problem ?? runs.problem,
            reload: async () => {
              await Promise.all([all.reload(), runs.reload()])
            },
          }}
        />
      ) : (
        <>
          {isNew && <First made={made?.id ?? ''} done={all.reload} />}
          <Needs isNew={isNew && (!!made || !all.rows.length)} />
          {!isNew && (
            <Section title="Latest runs" actions={<Link to="/runs">All runs</Link>}>
              <Table
                what="runs"
                empty={
                  <>
                    Send an event to the webhook of a <Link to="/flows">flow</Link>.
                  </>
                }
                {...latest}
              />
            </Section>
          )}
        </>
      )}
    </Screen>
  )
}

// --- what needs somebody ---

// What is overdue, and the list it is in.
const OVERDUE = [
  ['run', 'run', '/runs'],
  ['message', 'message', '/messages?status=QUEUED'],
  ['call', 'HTTP request', '/runs?status=WAITING'],
  ['event_attempt', 'event', '/settings/endpoints'],
  ['segment', 'segment', '/segments'],
  ['broadcast', 'broadcast', '/broadcasts'],
] as const
const MOST = 50

/** As the address of a list has it: of what is counted, the list shows all. */
const aWeekAgo = () => `createdAfter=${local(Date.now() - 7 * 86_400_000).slice(0, 10)}`

async function needs(me: ReturnType<typeof useMe>, may: (permission: string) => boolean) {
  const week = aWeekAgo()
  const [troubles, unknown, failed, plan, endpoints, paused] = await Promise.all([
    got(api.GET('/troubles')),
    got(api.GET('/messages', { params: { query: { status: 'UNKNOWN', limit: MOST } } })),
    got(
      api.GET('/runs', {
        params: { query: { status: 'FAILED', limit: MOST, ...days(new URLSearchParams(week)) } },
      }),
    ),
    got(api.GET('/billing/plan')),
    may('event_endpoints:read') ? got(api.GET('/event-endpoints', page())) : null,
    may('broadcasts:read')
      ? got(api.GET('/broadcasts', { params: { query: { state: 'PAUSED', limit: MOST } } }))
      : null,
    me.reload(), // whether sending is paused
  ])
  const count = (of: number, one: string) => (of === MOST ? `${MOST} or more ${one}s` : plural(of, one))
  const most = plan.limits.messagesPerMonth
  const list: { key: string; text: string; to: string }[] = []
  const say = (key: string, text: string, to: string) => list.push({ key, text, to })
  for (const { channel, code } of troubles.providers)
    say(channel, `${CHANNELS[channel]} messages are waiting: the provider ${WAITED_FOR[code]}`, '/settings/channels')
  for (const [kind, one, to] of OVERDUE) {
    const late = troubles.overdue[kind] ?? 0
    if (late)
      say(
        kind,
        `${plural(late, one)} overdue by more than five minutes: ask the operator whether the workers are running`,
        to,
      )
  }
  if (unknown.data.length)
    say(
      'unknown',
      `${count(unknown.data.length, 'message')} with an unknown outcome: check whether it arrived`,
      '/messages?status=UNKNOWN',
    )
  for (const { definitionId: id, name, count: refused } of troubles.refused)
    say(
      id,
      `${count(refused, 'refused request')} to ${name} this week`,
      `${flowPath(id)}/requests?outcome=REFUSED&${week}`,
    )
  for (const { id, name } of troubles.givenUp)
    if (id.startsWith('seg'))
      say(`given up ${id}`, `The work on segment ${name} was given up: save its filter again`, `/segments/${id}`)
    else
      say(
        `given up ${id}`,
        `The dates or times of ${name} are no longer followed: pause it and activate it again`,
        flowPath(id),
      )
  for (const { id, name } of paused?.data ?? []) say(id, `Broadcast ${name} is paused`, `/broadcasts/${id}`)
  if (failed.data.length)
    say('failed', `${count(failed.data.length, 'failed run')} this week`, `/runs?status=FAILED&${week}`)
  for (const endpoint of endpoints?.data ?? [])
    if (!endpoint.enabled && endpoint.disabledReason !== 'manual')
      say(
        endpoint.id,
        `Events are no longer sent to ${endpoint.url}: it was ${endpoint.disabledReason}`,
        '/settings/endpoints',
      )
  if (most && plan.usage.messagesPerMonth > most * 0.8)
    say(
      'plan',
      `${plan.usage.messagesPerMonth.toLocaleString()} of ${most.toLocaleString()} messages used this month`,
      '/settings/plan',
    )
  return { list, plan }
}

/** In a workspace that is new it is silent, unless something does. */
function Needs({ isNew }: { isNew: boolean }) {
  const may = useCan()
  const me = useMe()
  const found = useLoaded(
    () => needs(me, may),
    [],
    () => 15_000,
  )
  if (isNew && !me.workspace.sendingPaused && !found.problem && !found.value?.list.length) return null
  return (
    <Section title="Needs attention">
      {me.workspace.sendingPaused && (
        <p class="note">
          Sending is paused. <Link to="/settings/workspace">Resume</Link>
        </p>
      )}
      <Shown of={found}>
        {({ list, plan }) => (
          <>
            {list.length ? (
              <ul class="needs">
                {list.map(each => (
                  <li key={each.key}>
                    <Link to={each.to}>{each.text}</Link>
                  </li>
                ))}
              </ul>
            ) : (
              <p class="empty">Nothing needs attention.</p>
            )}
            <p class="soft">
              {plural(plan.usage.messagesPerMonth, 'message')} this month
              {plan.sending.dailyLimit !== null &&
                `; today ${plan.sending.sentToday.toLocaleString()} of ${plan.sending.dailyLimit.toLocaleString()}`}
              .
            </p>
          </>
        )}
      </Shown>
    </Section>
  )
}

// --- the first steps ---

const TEMPLATE = {
  name: 'Welcome',
  channel: 'email',
  category: 'transactional',
  content: {
    subject: 'Welcome, {{ contact.firstName | default: "friend" }}',
    html: '<h1>Hello {{ contact.firstName | default: "there" }},</h1>\n<p>you picked <b>{{ trigger.data.plan }}</b>.</p>',
  },
} as const
const FLOW = {
  name: 'Welcome',
  trigger: {
    source: 'inbound_webhook',
    contactLookup: 'email',
    contactPath: 'data.email',
    createContact: true,
    contactDefaults: { firstName: '{{trigger.data.name}}' },
  },
} as const
const isFirst = (flow: FlowName) =>
  flow.kind === 'workflows' &&
  flow.name === FLOW.name &&
  flow.state === 'ACTIVE' &&
  flow.triggerSource === FLOW.trigger.source

/** `made`: the flow of the first step, once it is there; who leaves the page goes on with the second. */
function First({ made, done }: { made: string; done: () => Promise<void> }) {
  const act = useAct()
  const { user } = useMe()
  const stored = useLoaded(
    async () => (made ? ((await got(api.GET('/workflows/{id}', byId(made)))).trigger.webhookUrl ?? '') : ''),
    [made],
  )
  const [fresh, setFresh] = useState('')
  const webhook = fresh || stored.value || ''
  // Outside the sandbox it is sent: to nobody else than who asks for it.
  const event = {
    data:
      !has('sandbox') && user
        ? { email: user.email, name: user.name, plan: 'pro' }
        : { email: 'ada@example.com', name: 'Ada', plan: 'pro' },
  }
  const templateId = useRef('') // made once, however often the flow is refused
  const key = useRef(crypto.randomUUID()) // the event counts once, however often its answer is lost
  const may = useCan()('workflows:write')
  if (!may) return <p class="empty">Nothing here yet. A member who can edit flows creates the first one.</p>
  const make = async () => {
    templateId.current ||= (await got(api.POST('/templates', { body: TEMPLATE }))).id
    const flow = await got(
      api.POST('/workflows', {
        body: {
          ...FLOW,
          state: 'ACTIVE',
          steps: [{ type: 'send_message', channel: 'email', templateId: templateId.current }],
        },
      }),
    )
    setFresh(flow.trigger.webhookUrl ?? '')
  }
  const send = async () => {
    const response = await fetch(at(new URL(webhook).pathname.replace(at(''), '')), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key.current },
      body: JSON.stringify(event),
    }).catch(() => {
      throw unreachable()
    })
    if (!response.ok) throw await refusal(response)
    go(`/runs/${(await response.json()).runId}`)
    void done()
  }
  return (
    <Section title="Three steps to your first message">
      <ol class="first">
        <li>
          <b>Create a template and a flow.</b> The template says hello; the flow waits for an event, finds or creates
          its contact, and sends it.
          <p>
            <Press class="primary" act={act} work={make} disabled={stored.busy || !!webhook}>
              {webhook ? 'Created' : 'Create both'}
            </Press>
          </p>
        </li>
        <li>
          <b>Send an event,</b> as your shop or your own program would:
          <pre tabIndex={0}>{pretty(event)}</pre>
          <p>
            <Press class="primary" act={act} work={send} disabled={!webhook}>
              Send this event
            </Press>
          </p>
        </li>
        <li>
          <b>See its run:</b> the page opens by itself and shows each step, the message, and why everything happened.
        </li>
      </ol>
      <p>
        Or start with one of the <Link to="/flows/new">twelve examples</Link>.
      </p>
      <Refused problem={act.problem} />
    </Section>
  )
}
