// The sandbox's inbox: what was captured instead of being sent, faults to try, and replies.
import { useState } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { fields, useAct, useDraft, useListed } from '../data'
import { CREATED, Days, days } from '../days'
import { useCan } from '../me'
import { useLocation } from '../router'
import {
  Button,
  Choice,
  Confirm,
  Facts,
  Field,
  Filters,
  Form,
  Link,
  Screen,
  Search,
  Section,
  Status,
  Table,
  When,
} from '../ui'
import { Preview } from '../preview'

type Captured = Schemas['CapturedMessage']
const CHANNELS = ['email', 'sms', 'whatsapp'] as const
const FAULTS = [
  ['fail', 'rejection'],
  ['throttle', 'throttling'],
  ['stall', 'no response, not delivered'],
  ['accept_then_drop', 'delivered, response lost'],
  ['duplicate_callback', 'duplicate delivery report'],
  ['bounce', 'hard bounce'],
  ['complain', 'spam complaint'],
] as const

export function Inbox() {
  const { query } = useLocation()
  const channel = (query.get('channel') || undefined) as (typeof CHANNELS)[number] | undefined
  const of = (name: string) => query.get(name) || undefined
  const filters = { to: of('to'), channel, contactId: of('contactId'), runId: of('runId'), ...days(query) }
  const [open, setOpen] = useState<string | null>(null)
  const list = useListed(
    cursor => got(api.GET('/sandbox/messages', { params: { query: { ...filters, cursor, limit: 50 } } })),
    [query.toString()],
    2000,
  )
  return (
    <Screen title="Sandbox inbox" lead="None of these messages was sent: the sandbox captures them.">
      <Filters
        names={['contactId', 'runId', ...CREATED]}
        more={
          <>
            <Search label="Contact" name="contactId" value={filters.contactId ?? ''} placeholder="an ID" />
            <Search label="Run" name="runId" value={filters.runId ?? ''} placeholder="an ID" />
            <Days />
          </>
        }
      >
        <Search label="To" name="to" value={filters.to ?? ''} placeholder="full address" />
        <Choice label="Channel" name="channel" value={channel ?? ''} options={CHANNELS} />
      </Filters>
      <Table<Captured>
        caption="Captured messages, newest first"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No messages match. <Link to="/inbox">Show all</Link>.
            </p>
          ) : (
            <p>No messages yet. Messages from your flows appear here.</p>
          )
        }
        columns={[
          { name: 'Captured', show: each => <When at={each.capturedAt} /> },
          { name: 'To', show: each => each.to ?? 'hidden' },
          { name: 'Channel', show: each => each.channel },
          {
            name: 'Message',
            class: 'wide',
            show: each => (
              <>
                <Button
                  class="plain row"
                  aria-expanded={open === each.id}
                  onClick={() => setOpen(open === each.id ? null : each.id)}
                >
                  {each.subject?.trim() || each.text?.trim().slice(0, 80) || '(no subject)'}
                </Button>
                {open === each.id && <Letter of={each} />}
              </>
            ),
          },
          { name: 'Run', show: each => (each.runId ? <Link to={`/runs/${each.runId}`}>run</Link> : '–') },
        ]}
      />
      <Faults />
      <Reply />
    </Screen>
  )
}

function Letter({ of }: { of: Captured }) {
  const [view, setView] = useState(of.html ? 'HTML' : 'Text')
  return (
    <div class="content">
      <div class="views" role="group" aria-label="Show as">
        {[...(of.html ? ['HTML'] : []), 'Text', 'Headers'].map(each => (
          <button key={each} type="button" aria-pressed={view === each} onClick={() => setView(each)}>
            {each}
          </button>
        ))}
      </div>
      {view === 'HTML' && <Preview of={{ html: of.html ?? '' }} />}
      {view === 'Text' && <pre tabIndex={0}>{of.text ?? 'No text.'}</pre>}
      {view === 'Headers' && <Facts of={Object.entries(of.headers)} />}
      <p>
        <Link to={`/messages/${of.messageId}`}>The message and its attempts</Link>
      </p>
    </div>
  )
}

function Faults() {
  const list = useListed(
    cursor => got(api.GET('/sandbox/faults', { params: { query: { cursor, limit: 50 } } })),
    ['faults'],
    5000,
  )
  const [draft, change, forget] = useDraft('fault', { kind: 'fail', count: '1', channel: '' })
  const act = useAct()
  if (!useCan()('messages:write')) return null
  return (
    <Section
      title="Provider faults"
      actions={
        !!list.rows?.length && (
          <Confirm
            label="Clear all"
            title="Clear all faults?"
            act={async () => {
              await got(api.DELETE('/sandbox/faults'))
              await list.reload()
            }}
          >
            <p>None of them happens to the next messages any more, whoever added it.</p>
          </Confirm>
        )
      }
    >
      <p class="soft">What happens to the next messages, to see how your flows respond.</p>
      {(list.rows?.length ?? 0) > 0 && (
        <ul class="plain">
          {list.rows?.map(each => (
            <li key={each.id}>
              <Status value="warning" /> {FAULTS.find(([kind]) => kind === each.kind)?.[1]}: {each.remaining} of{' '}
              {each.count} left{each.channel && `, ${each.channel}`}
            </li>
          ))}
        </ul>
      )}
      <Form
        act={act}
        label="Add fault"
        submit={async () => {
          await got(
            api.POST('/sandbox/faults', {
              body: {
                kind: draft.kind,
                count: Number(draft.count),
                channel: draft.channel || null,
              } as Schemas['NewProviderFault'],
            }),
          )
          forget()
          await list.reload()
        }}
      >
        <div class="columns">
          <Field label="Fault" value={draft.kind} set={kind => change({ kind })} options={FAULTS} pointer="/kind" />
          <Field
            label="Messages"
            type="number"
            min="1"
            max="1000"
            required
            value={draft.count}
            set={count => change({ count })}
            pointer="/count"
          />
          <Field
            label="Channel"
            value={draft.channel}
            set={channel => change({ channel })}
            options={[['', 'any'], ...CHANNELS.map(each => [each, each] as const)]}
            pointer="/channel"
          />
        </div>
      </Form>
    </Section>
  )
}

function Reply() {
  const [draft, change, forget] = useDraft('reply', { from: '', channel: 'sms', text: '' })
  const field = fields(draft, change)
  const [answer, setAnswer] = useState<Schemas['HeardReply'] | null>(null)
  const act = useAct()
  if (!useCan()('messages:write')) return null
  return (
    <Section title="Reply as a contact">
      <p class="soft">STOP, START and HELP work as usual.</p>
      <Form
        act={act}
        label="Reply"
        submit={async () => {
          setAnswer(await got(api.POST('/sandbox/replies', { body: draft as Schemas['NewReply'] })))
          forget({ ...draft, text: '' })
        }}
      >
        <div class="columns">
          <Field label="From" required placeholder="+4915112345678" {...field('from')} />
          <Field
            label="Channel"
            value={draft.channel}
            set={channel => change({ channel })}
            options={[
              ['sms', 'sms'],
              ['whatsapp', 'whatsapp'],
            ]}
            pointer="/channel"
          />
          <Field label="Text" required {...field('text')} />
        </div>
      </Form>
      {answer && (
        <p role="status">
          Understood as <b>{answer.meaning}</b>.{' '}
          {answer.answer ? (
            <>
              The contact gets: <q>{answer.answer}</q>
            </>
          ) : (
            'The contact gets no reply.'
          )}
        </p>
      )}
    </Section>
  )
}
