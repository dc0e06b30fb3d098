// Event endpoints: programs that are notified of what happens here, with what was sent to each.
import { useState } from 'preact/hooks'
import { api, byId, got, tagged, type Schemas } from '../api'
import { fields, useDraft, useListed, useStored } from '../data'
import { useCan } from '../me'
import { page } from '../names'
import { local } from '../days'
import { Secret } from '../secret'
import { Refusal } from '../session'
import { Sought } from '../sought'
import {
  Button,
  Confirm,
  Field,
  Form,
  Nothing,
  Refused,
  Section,
  Several,
  Shown,
  Status,
  Table,
  Unread,
  When,
  ShowMore,
  STATUS,
} from '../ui'
import { Change } from '../unsaved'

type Stored = Schemas['Endpoint']
type Type = NonNullable<Schemas['WritableEndpoint']['types']>[number]
const TYPES: Record<Type, string> = {
  'contact.created': 'Contact created',
  'contact.updated': 'Contact updated',
  'contact.deleted': 'Contact erased',
  'contact.unsubscribed': 'Contact unsubscribed',
  'run.completed': 'Run completed',
  'run.failed': 'Run failed',
  'message.sent': 'Message sent',
  'message.delivered': 'Message delivered',
  'message.bounced': 'Message bounced',
  'message.complained': 'Message marked as spam',
  'message.failed': 'Message failed',
  'message.unknown': 'Message outcome unknown',
  'broadcast.paused': 'Broadcast paused',
  'broadcast.sent': 'Broadcast sent',
}
const EMPTY = { url: '', description: '', types: [] as string[] }
type Draft = typeof EMPTY
const drafted = ({ url, description, types }: Stored): Draft => ({ url, description: description ?? '', types })
const written = (draft: Draft) =>
  ({ url: draft.url, description: draft.description || null, types: draft.types }) as Schemas['WritableEndpoint']

function Fields({ draft, change }: { draft: Draft; change: (changes: Partial<Draft>) => void }) {
  const field = fields(draft, change)
  return (
    <>
      <Field label="URL" type="url" required {...field('url')} />
      <Field label="Description" {...field('description')} />
      <Several
        label="Events"
        hint="None selected: all, including types added later."
        options={TYPES}
        {...field('types')}
        look="columns"
      />
    </>
  )
}

export function Endpoints() {
  const list = useListed(cursor => got(api.GET('/event-endpoints', page(cursor))), ['endpoints'])
  const [draft, change, forget] = useDraft('endpoint', EMPTY)
  const [secret, setSecret] = useState('')
  const may = useCan()('event_endpoints:write')
  return (
    <>
      {secret && <Secret name="The signing secret" value={secret} forget={() => setSecret('')} />}
      {list.rows ? <Refused problem={list.problem} /> : <Unread of={list} />}
      <Sought
        of={list}
        text={each =>
          [
            each.url,
            each.description,
            each.enabled ? 'active' : 'paused',
            each.disabledReason,
            each.failingSince && 'failing',
            ...each.types.map(type => `${type} ${TYPES[type as Type] ?? ''}`),
            each.types.length ? '' : 'all events',
          ].join(' ')
        }
      >
        {found =>
          found.rows?.length === 0 ? (
            <Nothing
              of={found}
              what="endpoints"
              empty={
                may
                  ? 'Add the URL of a program of yours to notify it of events.'
                  : 'An admin can add programs to notify of events.'
              }
            />
          ) : (
            found.rows?.map(each => <Endpoint key={each.id} of={each} reload={list.reload} shown={setSecret} />)
          )
        }
      </Sought>
      <ShowMore of={list} />
      {may && (
        <Section title="New endpoint">
          <Form
            label="Add endpoint"
            submit={async () => {
              setSecret((await got(api.POST('/event-endpoints', { body: written(draft) }))).secret)
              forget()
              await list.reload()
            }}
          >
            <Fields draft={draft} change={change} />
          </Form>
        </Section>
      )}
    </>
  )
}

function Endpoint({ of, reload, shown }: { of: Stored; reload: () => Promise<void>; shown: (secret: string) => void }) {
  const may = useCan()('event_endpoints:write')
  const [open, setOpen] = useState<'' | 'attempts' | 'change'>('')
  const [replayed, setReplayed] = useState('')
  const [since, setSince] = useState(() => local(Date.now() - 86_400_000)) // a day ago
  const path = byId(of.id)
  const replay = async () => {
    setReplayed('')
    if (!since) throw new Refusal(422, 'invalid', '', [{ pointer: '/since', message: 'Choose a day and a time.' }])
    const body = { since: new Date(since).toISOString() }
    for (let sent = 0, more = true; more;) {
      // a thousand at a time
      const answer = await got(api.POST('/event-endpoints/{id}/replay', { ...path, body }))
      sent += answer.replayed
      more = answer.more && answer.replayed > 0
      setReplayed(`${sent} events are sent again.`)
    }
  }
  const toggle = (which: typeof open) =>
    ({ 'aria-expanded': open === which, onClick: () => setOpen(open === which ? '' : which) }) as const
  return (
    <Section
      title={of.description ?? of.url}
      actions={
        <span class="actions">
          <Button {...toggle('attempts')}>Attempts</Button>
          {may && (
            <>
              <Button {...toggle('change')}>Edit</Button>
              <Confirm
                label={of.enabled ? 'Disable' : 'Enable'}
                title={of.enabled ? 'Disable this endpoint?' : 'Enable this endpoint?'}
                act={() =>
                  got(api.PATCH('/event-endpoints/{id}', { ...path, body: { enabled: !of.enabled } })).then(reload)
                }
              >
                <p>
                  {of.enabled
                    ? 'Nothing is sent to it until you enable it again.'
                    : 'Events from now on are sent to it.'}{' '}
                  What it {of.enabled ? 'misses meanwhile' : 'missed'} is sent by <i>Replay</i> alone.
                </p>
              </Confirm>
              <Confirm label="Replay" title="Replay its events?" act={replay}>
                <p>Everything that failed or was missed since then is sent again.</p>
                <Field
                  label="Since"
                  type="datetime-local"
                  required
                  value={since}
                  set={setSince}
                  pointer="/since"
                  hint="In your time zone."
                />
              </Confirm>
              <Confirm
                label="New secret"
                title="Create a new secret?"
                act={async () => {
                  shown((await got(api.POST('/event-endpoints/{id}/rotate', path))).secret)
                  await reload()
                }}
              >
                <p>
                  Events are signed with the new one from now on, and for 24 hours with the old one too, so that you can
                  update the receiver.
                </p>
              </Confirm>
              <Confirm
                label="Delete"
                danger
                title="Delete this endpoint?"
                act={() => got(api.DELETE('/event-endpoints/{id}', path)).then(reload)}
              >
                <p>Nothing more is sent to it, and its attempts are deleted.</p>
              </Confirm>
            </>
          )}
        </span>
      }
    >
      <p>
        <code>{of.url}</code>{' '}
        {of.enabled ? (
          <Status value="ACTIVE" />
        ) : (
          <>
            <Status value="PAUSED" /> {of.disabledReason}
          </>
        )}
        {of.failingSince && (
          <>
            {' '}
            failing since <When at={of.failingSince} />
          </>
        )}
      </p>
      <p class="soft">
        {of.types.length ? of.types.map(type => TYPES[type as Type] ?? type).join(', ') : 'All events.'}
      </p>
      {replayed && <p role="status">{replayed}</p>}
      {open === 'attempts' && <Attempts id={of.id} />}
      {open === 'change' && (
        <Edit
          id={of.id}
          done={async () => {
            setOpen('')
            await reload()
          }}
        />
      )}
    </Section>
  )
}

function Edit({ id, done }: { id: string; done: () => Promise<void> }) {
  const path = byId(id)
  const of = useStored(() => tagged(api.GET('/event-endpoints/{id}', path)), [id])
  return (
    <Shown of={of}>
      {({ value, tag }) => (
        <Change
          name={`endpoint.${id}`}
          of={{ stored: value, tag, again: of.again }}
          drafted={drafted}
          save={(draft, headers) => got(api.PATCH('/event-endpoints/{id}', { ...path, headers, body: written(draft) }))}
          done={done}
        >
          {(draft, change) => <Fields draft={draft} change={change} />}
        </Change>
      )}
    </Shown>
  )
}

function Attempts({ id }: { id: string }) {
  const list = useListed(
    cursor =>
      got(api.GET('/event-endpoints/{id}/attempts', { params: { path: { id }, query: { cursor, limit: 20 } } })),
    ['attempts', id],
    5000,
  )
  const may = useCan()('event_endpoints:write')
  return (
    <Table
      what="attempts"
      of={list}
      empty="They appear here once something happens."
      columns={[
        ['Event', each => each.type],
        STATUS,
        ['Time', each => <When at={each.createdAt} />],
        ['Response', each => each.reason?.detail ?? each.tries.at(-1)?.status ?? '–', 'wide'],
        [
          'Actions',
          each =>
            may &&
            each.status === 'FAILED' && (
              <Confirm
                label="Send again"
                title="Send this event again?"
                act={() =>
                  got(
                    api.POST('/event-endpoints/{id}/attempts/{attemptId}/replay', {
                      params: { path: { id, attemptId: each.id } },
                    }),
                  ).then(list.reload)
                }
              >
                <p>It keeps its webhook-id.</p>
              </Confirm>
            ),
        ],
      ]}
    />
  )
}
