// The sandbox's inbox: what was captured instead of being sent, faults to try, and replies.
import { useState } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { fields, useDraft, useListed } from '../data'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import { Button, Choice, Confirm, Facts, Field, Form, Link, Search, Section, Status, Views, When } from '../ui'
import { Preview } from '../preview'
import { CHANNELS } from '../words'
import { OfContact } from './messages'

type Captured = Schemas['CapturedMessage']
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
  const [open, setOpen] = useState<string | null>(null)
  const of = useNarrowed(
    '/sandbox/messages',
    asked => api.GET('/sandbox/messages', { params: { query: asked } }),
    ['to', 'channel', 'contactId', 'runId'],
    2000,
  )
  return (
    <ListScreen
      title="Sandbox inbox"
      what="messages"
      lead="None of these messages was sent: the sandbox captures them."
      filters={
        <>
          <Search name="to" placeholder="full address" />
          <Choice name="channel" options={Object.entries(CHANNELS)} />
        </>
      }
      more={<OfContact />}
      empty="Messages from your flows appear here."
      of={of}
      columns={[
        ['Captured', each => <When at={each.capturedAt} />],
        ['To', each => each.to ?? 'hidden'],
        ['Channel', each => each.channel],
        [
          'Message',
          each => (
            <>
              <Button
                class="plain row"
                aria-expanded={open === each.id}
                onClick={() => setOpen(open === each.id ? null : each.id)}
              >
                {each.subject?.trim() || each.text?.trim().slice(0, 80) || '(no subject)'}
              </Button>
              {open === each.id && <Email of={each} />}
            </>
          ),
          'wide',
        ],
        ['Run', each => (each.runId ? <Link to={`/runs/${each.runId}`}>run</Link> : '–')],
      ]}
    >
      <Faults />
      <Reply />
    </ListScreen>
  )
}

const PARTS = { Text: 'Text', Headers: 'Headers' }

function Email({ of }: { of: Captured }) {
  const [view, setView] = useState(of.html ? 'HTML' : 'Text')
  return (
    <div class="content">
      <Views label="Show as" of={of.html ? { HTML: 'HTML', ...PARTS } : PARTS} value={view} set={setView} />
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
  const field = fields(draft, change)
  if (!useCan()('messages:write')) return null
  return (
    <Section
      title="Provider faults"
      actions={
        !!list.rows?.length && (
          <Confirm
            label="Clear all"
            title="Clear all faults?"
            act={() => got(api.DELETE('/sandbox/faults')).then(list.reload)}
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
          <Field label="Fault" {...field('kind')} options={FAULTS} />
          <Field label="Messages" type="number" min="1" max="1000" required {...field('count')} />
          <Field label="Channel" {...field('channel')} options={[['', 'any'], ...Object.entries(CHANNELS)]} />
        </div>
      </Form>
    </Section>
  )
}

function Reply() {
  const [draft, change, forget] = useDraft('reply', { from: '', channel: 'sms', text: '' })
  const field = fields(draft, change)
  const [answer, setAnswer] = useState<Schemas['ReceivedReply'] | null>(null)
  if (!useCan()('messages:write')) return null
  return (
    <Section title="Reply as a contact">
      <p class="soft">STOP, START and HELP work as usual.</p>
      <Form
        label="Reply"
        submit={async () => {
          setAnswer(null)
          setAnswer(await got(api.POST('/sandbox/replies', { body: draft as Schemas['NewReply'] })))
          forget({ ...draft, text: '' })
        }}
      >
        <div class="columns">
          <Field label="From" required placeholder="+4915112345678" {...field('from')} />
          <Field
            label="Channel"
            {...field('channel')}
            options={[
              ['sms', 'SMS'],
              ['whatsapp', 'WhatsApp'],
            ]}
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
