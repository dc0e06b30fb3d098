// For super-admins: all workspaces, and what they may do about one.
import { useEffect } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { useDraft, useListed, useLoaded } from '../data'
import { Days } from '../days'
import { useNarrowed } from '../lists'
import { useMe } from '../me'
import { narrow, useFilter } from '../router'
import { AdminScreen, AnyAttempts, AnyAudit, AnyRuns, Health } from './installation'
import {
  Choice,
  Confirm,
  Facts,
  Field,
  Filters,
  Link,
  Screen,
  Search,
  Section,
  Shown,
  Status,
  Table,
  When,
  CREATED,
} from '../ui'

type Workspace = Schemas['AdminWorkspace']
const DEFAULT = '200 a day in the first seven days of an unpaid workspace, then no limit'
const stateOf = (each: Workspace) => (each.deleted ? 'DELETED' : each.suspended ? 'SUSPENDED' : 'ACTIVE')

const AllWorkspaces = () => (
  <AdminScreen tab="" lead="Everything on this installation. Only super-admins see this.">
    <Filters>
      <Search label="Search" name="q" placeholder="name starts with" />
      <Choice
        name="suspended"
        options={[
          ['true', 'yes'],
          ['false', 'no'],
        ]}
      />
      <Days />
    </Filters>
    <Table
      what="workspaces"
      of={useNarrowed('/admin/workspaces', asked => api.GET('/admin/workspaces', { params: { query: asked } }), [
        'q',
        'suspended',
      ])}
      columns={[
        ['Name', each => <Link to={`/admin/${each.id}`}>{each.name}</Link>],
        ['State', each => <Status value={stateOf(each)} />],
        ['Members', each => each.members.toLocaleString()],
        ['Daily limit', each => each.dailyLimit?.toLocaleString() ?? 'default'],
        CREATED,
      ]}
    />
  </AdminScreen>
)

const PARTS: Record<string, () => preact.JSX.Element> = {
  '': AllWorkspaces,
  health: Health,
  runs: AnyRuns,
  attempts: AnyAttempts,
  audit: AnyAudit,
}

/** A part of these pages, or a workspace by its ID. */
export function Admin({ part = '' }: { part?: string }) {
  const Part = PARTS[part]
  const old = useFilter('workspace') // as links to these lists had it
  useEffect(() => {
    if (old) narrow({ workspace: '', workspaceId: old })
  }, [old])
  if (old) return null
  return Part ? <Part /> : <AnyWorkspace id={part} />
}

function AnyWorkspace({ id }: { id: string }) {
  const path = byId(id)
  const found = useLoaded(() => tagged(api.GET('/admin/workspaces/{id}', path)), [id])
  const value = found.value?.value
  const isMine = useMe().workspace.id === id
  const suspend = () => got(api.POST('/admin/workspaces/{id}/suspend', path)).then(found.reload)
  const resume = () => got(api.POST('/admin/workspaces/{id}/resume', path)).then(found.reload)
  return (
    <Screen
      title={value?.name ?? 'Workspace'}
      id={id}
      actions={
        value &&
        !value.deleted &&
        (value.suspended ? (
          <Confirm label="Resume" title={`Resume ${value.name}?`} act={resume}>
            <p>
              Its members, keys and webhooks work again. Everything continues where it stopped, and waiting messages are
              sent.
            </p>
          </Confirm>
        ) : (
          <Confirm label="Suspend" danger title={`Suspend ${value.name}?`} disabled={isMine} act={suspend}>
            <p>
              At once its webhooks answer 404 and its API 403, also to its members here, and nothing is sent. Nothing is
              lost: resuming continues where it stopped. Its audit trail records that you did this.
            </p>
          </Confirm>
        ))
      }
    >
      <p>
        <Link to="/admin">All workspaces</Link>; this one’s <Link to={`/admin/runs?workspaceId=${id}`}>runs</Link>,{' '}
        <Link to={`/admin/attempts?workspaceId=${id}`}>attempts</Link> and{' '}
        <Link to={`/admin/audit?workspaceId=${id}`}>audit trail</Link>
      </p>
      <Shown of={found}>
        {({ value, tag }) => (
          <>
            {isMine && (
              <p class="note">
                You are signed in to this workspace. Switch to another one before you suspend it, or you lock yourself
                out.
              </p>
            )}
            <Facts
              of={[
                ['State', <Status value={stateOf(value)} />],
                ['Members', value.members.toLocaleString()],
                ['Created', <When at={value.createdAt} />],
                ['Daily limit', value.dailyLimit?.toLocaleString() ?? `default: ${DEFAULT}`],
              ]}
            />
            {!value.deleted && <Limit of={value} tag={tag} reload={found.reload} />}
            <People workspaceId={id} />
          </>
        )}
      </Shown>
    </Screen>
  )
}

function Limit({ of, tag, reload }: { of: Workspace; tag: string; reload: () => Promise<void> }) {
  const [{ text }, typed] = useDraft(`limit.${of.id}`, { text: of.dailyLimit?.toString() ?? '' })
  const dailyLimit = text.trim() === '' ? null : Number(text)
  const path = byId(of.id)
  const change = async () => {
    const patch = () =>
      got(api.PATCH('/admin/workspaces/{id}', { ...path, headers: { 'If-Match': tag }, body: { dailyLimit } }))
    try {
      await settled(patch(), async () => (await got(api.GET('/admin/workspaces/{id}', path))).dailyLimit === dailyLimit)
    } finally {
      await reload() // also when it is refused as stale: pressed again, it is of what stands there now
    }
  }
  return (
    <Section title="Messages per day">
      <div class="buttons">
        <Confirm label="Set limit" title={`Change the daily limit of ${of.name}?`} act={change}>
          <Field
            label="Daily limit"
            type="number"
            min="0"
            value={text}
            set={text => typed({ text })}
            pointer="/dailyLimit"
            hint={`Through the operator’s channels. Empty: the default, ${DEFAULT}.`}
          />
          <p>
            From the next message on:{' '}
            {dailyLimit === null ? DEFAULT : `at most ${dailyLimit.toLocaleString()} a day, until it is set again`}.
            Messages beyond it are suppressed and can be sent again later. Its audit trail records that you did this.
          </p>
        </Confirm>
      </div>
    </Section>
  )
}

function People({ workspaceId }: { workspaceId: string }) {
  const list = useListed(
    cursor => got(api.GET('/admin/users', { params: { query: { workspaceId, cursor, limit: 50 } } })),
    ['members', workspaceId],
  )
  return (
    <Section title="Members">
      <Table
        what="members"
        of={list}
        empty="They come by invitation."
        columns={[
          ['Name', each => each.name],
          ['Email', each => each.email],
          ['Verified', each => (each.emailVerified ? 'yes' : 'no')],
          ['Workspaces', each => each.workspaces.toLocaleString()],
        ]}
      />
    </Section>
  )
}
