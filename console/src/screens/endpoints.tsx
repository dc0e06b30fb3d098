// Event endpoints: programs that are notified of what happens here, with what was sent to each.
import { useState } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { fields, useAct, useDraft, useListed, useStored } from '../data'
import { useCan } from '../me'
import { local } from '../days'
import { same } from '../exact'
import { Refusal } from '../session'
import { MOST, Sought } from '../sought'
import { Confirm, Field, Form, Refused, Section, Secret, Several, Shown, Status, Table, When, ShowMore } from '../ui'
import { Unsaved } from '../unsaved'

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
        chosen={draft.types}
        set={types => change({ types })}
        pointer="/types"
        look="columns"
      />
    </>
  )
}

export function Endpoints() {
  const list = useListed(
    cursor => got(api.GET('/event-endpoints', { params: { query: { cursor, limit: MOST } } })),
    ['endpoints'],
  )
  const [draft, change, forget] = useDraft('endpoint', EMPTY)
  const [secret, setSecret] = useState('')
  const act = useAct()
  const may = useCan()('event_endpoints:write')
  return (
    <>
      {secret && <Secret name="The signing secret" value={secret} forget={() => setSecret('')} />}
      {list.rows?.length === 0 && (
        <p class="empty">
          No endpoints yet.{' '}
          {may
            ? 'Add the URL of a program of yours to notify it of events.'
            : 'An admin can add programs to notify of events.'}
        </p>
      )}
      <Refused problem={list.problem} />
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
        {found => found.rows?.map(each => <Endpoint key={each.id} of={each} reload={list.reload} shown={setSecret} />)}
      </Sought>
      <ShowMore of={list} />
      {may && (
        <Section title="New endpoint">
          <Form
            act={act}
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
    ({ type: 'button', 'aria-expanded': open === which, onClick: () => setOpen(open === which ? '' : which) }) as const
  return (
    <Section
      title={of.description ?? of.url}
      actions={
        <span class="actions">
          <button {...toggle('attempts')}>Attempts</button>
          {may && <button {...toggle('change')}>Edit</button>}
          {may && (
            <Confirm
              label={of.enabled ? 'Disable' : 'Enable'}
              title={of.enabled ? 'Disable this endpoint?' : 'Enable this endpoint?'}
              act={async () => {
                await got(api.PATCH('/event-endpoints/{id}', { ...path, body: { enabled: !of.enabled } }))
                await reload()
              }}
            >
              <p>
                {of.enabled ? 'Nothing is sent to it until you enable it again.' : 'Events from now on are sent to it.'}{' '}
                What it {of.enabled ? 'misses meanwhile' : 'missed'} is sent by <i>Replay</i> alone.
              </p>
            </Confirm>
          )}
          {may && (
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
          )}
          {may && (
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
          )}
          {may && (
            <Confirm
              label="Delete"
              danger
              title="Delete this endpoint?"
              act={async () => {
                await got(api.DELETE('/event-endpoints/{id}', path))
                await reload()
              }}
            >
              <p>Nothing more is sent to it, and its attempts are deleted.</p>
            </Confirm>
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
        <Change
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

function Change({ id, done }: { id: string; done: () => Promise<void> }) {
  const path = byId(id)
  const stored = useStored(() => tagged(api.GET('/event-endpoints/{id}', path)), [id])
  return (
    <Shown of={stored}>
      {({ value, tag }) => <ChangeForm of={value} tag={tag} again={stored.again} done={done} />}
    </Shown>
  )
}

function ChangeForm({
  of,
  tag,
  again,
  done,
}: {
  of: Stored
  tag: string
  again: () => Promise<Stored>
  done: () => Promise<void>
}) {
  const [draft, change, forget, held] = useDraft(`endpoint.${of.id}`, drafted(of), tag)
  const act = useAct()
  return (
    <Form
      act={act}
      label="Save"
      submit={async () => {
        const change = got(
          api.PATCH('/event-endpoints/{id}', {
            params: { path: { id: of.id } },
            headers: { 'If-Match': held.tag },
            body: written(draft),
          }),
        )
        await settled(change, async () => same(drafted(await again()), draft))
        if (forget(draft)) await done()
        else await again()
      }}
    >
      <Unsaved of={held} />
      <Fields draft={draft} change={change} />
    </Form>
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
      caption="Events sent"
      of={list}
      id={each => each.id}
      empty={<p>No events sent yet. They appear here once something happens.</p>}
      columns={[
        { name: 'Event', show: each => each.type },
        { name: 'Status', show: each => <Status value={each.status} /> },
        { name: 'Time', show: each => <When at={each.createdAt} /> },
        { name: 'Response', class: 'wide', show: each => each.reason?.detail ?? each.tries.at(-1)?.status ?? '–' },
        {
          name: 'Actions',
          show: each =>
            may &&
            each.status === 'FAILED' && (
              <Confirm
                label="Send again"
                title="Send this event again?"
                act={async () => {
                  await got(
                    api.POST('/event-endpoints/{id}/attempts/{attemptId}/replay', {
                      params: { path: { id, attemptId: each.id } },
                    }),
                  )
                  await list.reload()
                }}
              >
                <p>It keeps its webhook-id.</p>
              </Confirm>
            ),
        },
      ]}
    />
  )
}
