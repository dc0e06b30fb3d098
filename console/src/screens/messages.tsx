// Messages: what was said to whom, every attempt, and what to do when the outcome is unknown.
import { useState } from 'preact/hooks'
import { api, byId, got, type Schemas } from '../api'
import { useDraft, useListed, useLoaded } from '../data'
import { Days } from '../days'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import { ContactLink, useContactNames } from '../names'
import { MEANING } from '../words'
import {
  Choice,
  Confirm,
  Facts,
  Field,
  Link,
  Screen,
  Search,
  Section,
  Sentence,
  Shown,
  Status,
  Table,
  Views,
  When,
  STATUS,
} from '../ui'
import { Preview } from '../preview'
import { Why } from './runs'

export const STATUSES = [
  'QUEUED',
  'SENDING',
  'SENT',
  'DELIVERED',
  'FAILED',
  'BOUNCED',
  'COMPLAINED',
  'SUPPRESSED',
  'UNKNOWN',
] as const

export function Messages() {
  const of = useNarrowed(
    '/messages',
    asked => api.GET('/messages', { params: { query: asked } }),
    ['status', 'contactId', 'runId'],
    5000,
  )
  const names = useContactNames((of.rows ?? []).map(each => each.contactId))
  return (
    <ListScreen
      title="Messages"
      lead="Every message, with its outcome. Unknown ones wait for your decision."
      of={of}
      filters={<Choice name="status" options={STATUSES} />}
      more={<OfContact />}
      empty={
        <>
          Flows send them; see <Link to="/flows">Flows</Link>.
        </>
      }
      columns={[
        [
          'Created',
          each => (
            <Link to={`/messages/${each.id}`}>
              <When at={each.createdAt} />
            </Link>
          ),
        ],
        STATUS,
        ['Channel', each => each.channel],
        ['To', each => each.to ?? <span class="soft">not known yet</span>],
        ['Contact', each => (each.contactId ? <ContactLink id={each.contactId} names={names} /> : '–')],
        ['Reason', each => <Sentence text={each.reason?.detail ?? ''} />, 'wide'],
      ]}
    />
  )
}

/** Filters of messages, in the sandbox, too. */
export const OfContact = () => (
  <>
    <Search label="Contact" name="contactId" placeholder="address, name or ID" />
    <Search label="Run" name="runId" placeholder="an ID" />
    <Days />
  </>
)

type Known = Pick<Schemas['Message'], 'id' | 'status' | 'resendable'>

/** What a member can do about a message that did not arrive, or of which nobody knows whether it did. */
function Acts({ message, done }: { message: Known; done: () => Promise<void> }) {
  const may = useCan()('messages:write')
  if (!may) return null
  if (message.status === 'UNKNOWN')
    return (
      <>
        <Found message={message} arrived done={done} /> <Found message={message} arrived={false} done={done} />
      </>
    )
  if (!message.resendable) return null
  return (
    <Confirm
      label="Send again"
      title="Send this message again?"
      act={() => got(api.POST('/messages/{id}/resend', byId(message.id))).then(done)}
    >
      <p>A new attempt is made with the same content, to the contact’s current address.</p>
    </Confirm>
  )
}

/** Records what somebody found who looked; what did not arrive can be sent again afterwards. */
function Found({ message, arrived, done }: { message: Known; arrived: boolean; done: () => Promise<void> }) {
  const [{ note }, change, forget] = useDraft(`found.${message.id}.${arrived}`, { note: '' })
  const act = async () => {
    await got(
      api.POST('/messages/{id}/resolve', {
        ...byId(message.id),
        body: { arrived, note: note.trim() || null },
      }),
    )
    forget()
    await done()
  }
  const label = arrived ? 'It arrived' : 'It did not arrive'
  return (
    <Confirm label={label} title={`Record that it ${arrived ? 'arrived' : 'did not arrive'}?`} sure="Record" act={act}>
      <p>
        {arrived
          ? 'From then on the message counts as sent, and nobody is asked about it again.'
          : 'Record this only if the provider’s log shows it: if it did arrive, sending it again means that the contact gets it twice.'}{' '}
        Your name and the time are kept in its history.
      </p>
      <Field
        label="Where you saw it"
        value={note}
        set={note => change({ note })}
        pointer="/note"
        placeholder="the provider’s log, or the recipient’s answer"
      />
    </Confirm>
  )
}

export function Message({ id }: { id: string }) {
  const message = useLoaded(
    () => got(api.GET('/messages/{id}', byId(id))),
    [id],
    ({ status }) => (['QUEUED', 'SENDING'].includes(status) ? 1500 : status === 'SENT' ? 4000 : 0),
  ) // which may bounce yet
  const names = useContactNames([message.value?.contactId ?? null])
  return (
    <Screen title="Message" id={id} actions={message.value && <Acts message={message.value} done={message.reload} />}>
      <Shown of={message}>
        {value => (
          <>
            <p class="verdict" aria-live="polite">
              <Status value={value.status} /> {MEANING[value.status]}
            </p>
            <Why reason={value.status === 'UNKNOWN' ? { detail: value.reason?.detail ?? null } : value.reason} />
            <Facts
              of={[
                ['To', value.to ?? 'not known yet'],
                ['Channel', value.channel],
                ['Contact', value.contactId ? <ContactLink id={value.contactId} names={names} /> : '–'],
                ['Run', value.runId ? <Link to={`/runs/${value.runId}`}>View run</Link> : 'none'],
                [
                  'Template',
                  value.templateId ? <Link to={`/templates/${value.templateId}`}>View template</Link> : 'none',
                ],
                ['Created', <When at={value.createdAt} />],
                ...(value.until ? [['Waits until', <When at={value.until} />] as const] : []),
              ]}
            />
            <Section title="Content">
              <Content id={id} content={value.content ?? null} />
            </Section>
            <Section title="Attempts">
              <Attempts id={id} status={value.status} />
            </Section>
          </>
        )}
      </Shown>
    </Screen>
  )
}

export function Content({ id, content }: { id: string; content: Record<string, string> | null }) {
  const [part, setPart] = useState('')
  if (!content) return <p class="empty">It was not rendered, or its content was removed.</p>
  const parts = ['html', 'text'].filter(name => name in content)
  const shown = parts.includes(part) ? part : parts.includes('html') ? 'html' : (parts[0] ?? '')
  return (
    <div class="content">
      {content.fromEmail && (
        <p>
          <span class="soft">From</span> {content.fromName} {content.fromEmail}
        </p>
      )}
      {content.subject !== undefined && (
        <p>
          <span class="soft">Subject</span> <b class="subject">{content.subject}</b>
        </p>
      )}
      {parts.length > 1 && <Views label="Show as" of={{ html: 'HTML', text: 'Text' }} value={shown} set={setPart} />}
      {shown === 'html' ? (
        <Preview of={{ messageId: id }} />
      ) : shown ? (
        <pre tabIndex={0}>{content[shown]}</pre>
      ) : (
        <Approved content={content} />
      )}
    </div>
  )
}

/** A message by a template that WhatsApp approved: its name, and what is put into its places. */
export function Approved({ content: { contentSid, variables = {} } }: { content: Record<string, unknown> }) {
  const places = typeof variables === 'string' ? (JSON.parse(variables) as object) : (variables as object) // as it is sent
  return contentSid ? (
    <Facts
      of={[
        ['Approved template', String(contentSid)],
        ...Object.entries(places).map(([name, text]) => [`Variable ${name}`, String(text)] as const),
      ]}
    />
  ) : null
}

function Attempts({ id, status }: { id: string; status: string }) {
  const list = useListed(
    cursor => got(api.GET('/messages/delivery-attempts', { params: { query: { messageId: id, cursor, limit: 50 } } })),
    ['attempts', id, status],
  )
  return (
    <Table
      what="attempts"
      of={list}
      empty="The first is made once the message is due and nothing holds it back."
      columns={[
        ['Attempt', each => each.number],
        STATUS,
        [
          'Provider',
          each => (
            <>
              {each.provider ?? '–'}
              {each.providerMessageId && (
                <>
                  <br />
                  <code>{each.providerMessageId}</code>
                </>
              )}
            </>
          ),
        ],
        [
          'History',
          each => (
            <ol class="plain">
              {each.events.map((event, index) => (
                <li key={index}>
                  <When at={event.at} /> {event.status.toLowerCase()}
                  {event.detail && (
                    <>
                      : <Sentence text={event.detail} />
                    </>
                  )}
                  {(event.missing?.length ?? 0) > 0 && `; no value: ${event.missing?.join(', ')}`}
                </li>
              ))}
            </ol>
          ),
          'wide',
        ],
      ]}
    />
  )
}

/** The message of a step, with its attempts, on the page of its run, which looks for what becomes of it. */
export function MessageCard({ id, known, reload }: { id: string; known: string; reload: () => Promise<void> }) {
  const message = useLoaded(() => got(api.GET('/messages/{id}', byId(id))), [id, known])
  return (
    <div class="card">
      <Shown of={message}>
        {value => (
          <>
            <p>
              <Status value={value.status} /> {value.channel} to {value.to ?? 'an address not known yet'}:{' '}
              <Link to={`/messages/${id}`}>{value.content?.subject ?? 'the message'}</Link>
            </p>
            <Why reason={value.reason ?? { detail: MEANING[value.status] ?? null }} />
            <details>
              <summary>{value.attempts.length === 1 ? 'One attempt' : `${value.attempts.length} attempts`}</summary>
              <Attempts id={id} status={value.status} />
            </details>
            <p class="buttons">
              <Acts
                message={value}
                done={async () => {
                  await reload()
                  await message.reload()
                }}
              />
            </p>
          </>
        )}
      </Shown>
    </div>
  )
}
