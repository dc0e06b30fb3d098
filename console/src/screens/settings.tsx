// Settings: the workspace, its members, their sign-in and keys, channels, event endpoints, suppressions, topics, the audit trail and the plan.
import { useState } from 'preact/hooks'
import { api, byId, download, got, settled, tagged, type Schemas } from '../api'
import { useAct, useDraft, useListed, useLoaded } from '../data'
import { Later, reaching } from '../later'
import { Days, days } from '../days'
import { useCan, useMe } from '../me'
import { narrow, useLocation } from '../router'
import { switchTo } from '../session'
import { MOST, Sought } from '../sought'
import { CHANNELS } from '../words'
import { Endpoints } from './endpoints'
import { Plan } from './plan'
import { SignOn } from './sign_on'
import { Workspace } from './workspace'
import {
  Check,
  Choice,
  Confirm,
  Facts,
  Field,
  Filters,
  Form,
  Link,
  Refused,
  Screen,
  Search,
  Secret,
  Section,
  Shown,
  Status,
  Table,
  When,
} from '../ui'

const PARTS = [
  ['workspace', 'Workspace', '', () => <Workspace />],
  ['account', 'Account', '', () => <Account />],
  ['members', 'Members', 'memberships:read', () => <Members />],
  ['sign-in', 'Single sign-on', 'settings:read', () => <SignOn />],
  ['keys', 'API keys', 'api_keys:read', () => <Keys />],
  ['channels', 'Channels', 'settings:read', () => <Channels />],
  ['endpoints', 'Event endpoints', 'event_endpoints:read', () => <Endpoints />],
  ['suppressions', 'Suppressions', 'suppressions:read', () => <Suppressions />],
  ['topics', 'Topics', 'contacts:read', () => <Later load={reaching} show={({ Topics }) => <Topics />} />],
  ['audit', 'Audit trail', 'audit_logs:read', () => <Audit />],
  ['plan', 'Plan', 'billing:read', () => <Plan />],
] as const
const ROLES = ['viewer', 'editor', 'admin', 'owner'] as const
type Role = (typeof ROLES)[number]

/** The roles that one may give and take: nobody grants more than they hold. */
function useGrantable(): readonly Role[] {
  const { role } = useMe()
  return ROLES.slice(0, ROLES.findIndex(each => each === role) + 1)
}

const choices = (roles: readonly Role[]) => roles.map(role => [role, role] as const)

export function Settings({ part }: { part: string }) {
  const may = useCan()
  const { role } = useMe()
  const mine = PARTS.filter(([, , needs]) => !needs || may(needs))
  const [, name, needs, show] = PARTS.find(([key]) => key === part) ?? PARTS[0]!
  return (
    <Screen title={name} lead="Settings">
      <nav class="tabs" aria-label="Settings">
        {mine.map(([key, label]) => (
          <Link key={key} to={`/settings/${key}`} aria-current={key === part ? 'page' : undefined}>
            {label}
          </Link>
        ))}
      </nav>
      {!needs || may(needs) ? (
        show()
      ) : (
        <p class="empty">Your role ({role}) does not allow this. An admin of the workspace can change your role.</p>
      )}
    </Screen>
  )
}

// --- account ----------------------------------------------------------------------------------------

function Account() {
  const { user, reload } = useMe()
  const [draft, setDraft] = useState({ currentPassword: '', newPassword: '' })
  const [done, setDone] = useState('')
  const act = useAct()
  const verifying = useAct()
  if (!user) return null
  return (
    <>
      <Facts
        of={[
          ['Name', user.name],
          ['Email', user.email],
          [
            'Verified',
            user.emailVerified ? (
              'yes'
            ) : (
              <>
                no{' '}
                <button
                  type="button"
                  class="small"
                  disabled={verifying.busy}
                  onClick={() =>
                    void verifying.run(async () => {
                      await got(api.POST('/auth/email/verification'))
                      setDone('An email with a link is on its way.')
                      await reload()
                    })
                  }
                >
                  Resend email
                </button>
              </>
            ),
          ],
        ]}
      />
      <Refused problem={verifying.problem} />
      {done && <p role="status">{done}</p>}
      <Section title="Change password">
        <Form
          act={act}
          label="Change password"
          submit={async () => {
            await got(api.PATCH('/auth/password', { body: draft }))
            setDraft({ currentPassword: '', newPassword: '' })
            setDone('Password changed. Your other sessions have ended.')
          }}
        >
          <input
            class="unseen"
            type="email"
            autocomplete="username"
            value={user.email}
            readOnly
            tabIndex={-1}
            aria-hidden="true"
          />
          <Field
            label="Current password"
            type="password"
            autocomplete="current-password"
            required
            value={draft.currentPassword}
            set={currentPassword => setDraft({ ...draft, currentPassword })}
            pointer="/currentPassword"
          />
          <Field
            label="New password"
            type="password"
            autocomplete="new-password"
            required
            hint="At least ten characters."
            value={draft.newPassword}
            set={newPassword => setDraft({ ...draft, newPassword })}
            pointer="/newPassword"
          />
        </Form>
      </Section>
      <OwnWorkspaces />
    </>
  )
}

function OwnWorkspaces() {
  const list = useListed(
    cursor => got(api.GET('/workspaces', { params: { query: { cursor, limit: 50 } } })),
    ['workspaces'],
  )
  const { workspace } = useMe()
  const [draft, set, forget] = useDraft('workspace.new', { name: '' })
  const act = useAct(),
    going = useAct()
  return (
    <Section title="Your workspaces">
      <Refused problem={going.problem} />
      <Table
        caption="Your workspaces, newest first"
        of={list}
        id={each => each.id}
        empty={<p>No workspaces yet. Create one below.</p>}
        columns={[
          { name: 'Name', show: each => each.name },
          { name: 'Your role', show: each => each.role },
          { name: 'Created', show: each => <When at={each.createdAt} /> },
          {
            name: 'Actions',
            show: each =>
              each.id === workspace.id ? (
                'current'
              ) : (
                <button type="button" disabled={going.busy} onClick={() => void going.run(() => switchTo(each.id))}>
                  Switch
                </button>
              ),
          },
        ]}
      />
      <Form
        act={act}
        label="Create and switch"
        submit={async () => {
          const made = await got(api.POST('/workspaces', { body: { name: draft.name } }))
          forget()
          await switchTo(made.id)
        }}
      >
        <Field
          label="Name of the new workspace"
          required
          value={draft.name}
          set={name => set({ name })}
          pointer="/name"
          hint="Each workspace has its own contacts, flows and members. You will be the owner."
        />
      </Form>
    </Section>
  )
}

// --- members and keys -------------------------------------------------------------------------------

function Members() {
  const list = useListed(
    cursor => got(api.GET('/memberships', { params: { query: { cursor, limit: MOST } } })),
    ['members'],
  )
  const may = useCan()('memberships:write')
  const roles = useGrantable()
  const [draft, set, forget] = useDraft('invitation', { email: '', role: 'editor' as Role })
  const act = useAct()
  return (
    <>
      <Sought
        of={list}
        text={each =>
          `${each.name ?? 'invited'} ${each.email ?? 'hidden'} ${each.role} ${each.role === 'editor' && each.sendsBroadcasts ? 'sends broadcasts' : ''} ${each.status}`
        }
      >
        {found => (
          <Table
            caption="Members"
            of={found}
            id={each => each.id}
            empty={<p>No members yet. {may && 'Invite one below.'}</p>}
            columns={[
              { name: 'Name', show: each => each.name ?? <span class="soft">invited</span> },
              { name: 'Email', show: each => each.email ?? <span class="soft">hidden</span> },
              {
                name: 'Role',
                show: each => (
                  <>
                    {each.role}
                    {each.role === 'editor' && each.sendsBroadcasts && ', sends broadcasts'}
                  </>
                ),
              },
              { name: 'Status', show: each => <Status value={each.status} /> },
              {
                name: 'Actions',
                show: each =>
                  may &&
                  roles.includes(each.role) && (
                    <span class="actions">
                      {each.status === 'ACTIVE' && <ChangeMember member={each} roles={roles} done={list.reload} />}
                      <Confirm
                        label={each.status === 'PENDING' ? 'Revoke' : 'Remove'}
                        danger
                        title={
                          each.status === 'PENDING'
                            ? 'Revoke this invitation?'
                            : `Remove ${each.name ?? 'this member'}?`
                        }
                        sure={each.status === 'PENDING' ? 'Revoke' : 'Remove'}
                        act={async () => {
                          await got(api.DELETE('/memberships/{id}', byId(each.id)))
                          await list.reload()
                        }}
                      >
                        <p>
                          {each.status === 'PENDING'
                            ? 'Its link stops working.'
                            : 'Their sessions in this workspace end at once, and their API keys stop working.'}
                        </p>
                      </Confirm>
                    </span>
                  ),
              },
            ]}
          />
        )}
      </Sought>
      {may && (
        <Section title="Invite">
          <Form
            act={act}
            label="Send invitation"
            submit={async () => {
              await got(api.POST('/memberships/invitations', { body: draft }))
              forget({ ...draft, email: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field
                label="Email"
                type="email"
                required
                value={draft.email}
                set={email => set({ email })}
                pointer="/email"
              />
              <Field
                label="Role"
                value={draft.role}
                set={role => set({ role: role as Role })}
                options={choices(roles)}
                pointer="/role"
              />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}

function ChangeMember({
  member,
  roles,
  done,
}: {
  member: Schemas['Membership']
  roles: readonly Role[]
  done: () => Promise<void>
}) {
  const [stored, setStored] = useState<{ value: Schemas['Membership']; tag: string } | null>(null)
  const [chosen, choose] = useState<Schemas['RoleChangePatch']>({}) // what is not chosen here stays as somebody else may have set it
  const path = byId(member.id)
  const read = async () => {
    const now = await tagged(api.GET('/memberships/{id}', path))
    setStored(now)
    return now.value
  }
  const shown = { ...(stored?.value ?? member), ...chosen }
  return (
    <Confirm
      label="Change role"
      title={`Change the role of ${member.name ?? 'this member'}?`}
      read={() => {
        choose({})
        return read()
      }}
      act={async () => {
        const change = got(
          api.PATCH('/memberships/{id}', { ...path, headers: { 'If-Match': stored!.tag }, body: chosen }),
        )
        await settled(change, async () => {
          const now = await read()
          return now.role === shown.role && now.sendsBroadcasts === shown.sendsBroadcasts
        })
        await done()
      }}
    >
      <p>It applies at once, also to API keys that the member created.</p>
      <Field
        label="Role"
        value={shown.role}
        set={role => choose({ ...chosen, role: role as Role })}
        options={choices(roles)}
        pointer="/role"
      />
      {shown.role === 'editor' && (
        <Check
          label="Can send broadcasts too"
          value={shown.sendsBroadcasts === true}
          set={sendsBroadcasts => choose({ ...chosen, sendsBroadcasts })}
          pointer="/sendsBroadcasts"
        />
      )}
    </Confirm>
  )
}

function Keys() {
  const list = useListed(
    cursor => got(api.GET('/settings/api-keys', { params: { query: { cursor, limit: MOST } } })),
    ['keys'],
  )
  const [draft, set, forget] = useDraft('key', { name: '', role: 'editor' as Role, expiresAt: '' })
  const [made, setMade] = useState('')
  const act = useAct()
  const may = useCan()('api_keys:write')
  const roles = useGrantable()
  return (
    <>
      {made && <Secret name="The new API key" value={made} forget={() => setMade('')} />}
      <Sought
        of={list}
        text={each => `${each.name} ${each.last4} ${each.role} ${each.expiresAt && each.lastUsedAt ? '' : 'never'}`}
      >
        {found => (
          <Table
            caption="API keys"
            of={found}
            id={each => each.id}
            empty={<p>No API keys yet. Programs need one to use the API.</p>}
            columns={[
              {
                name: 'Name',
                show: each => (
                  <>
                    {each.name} <span class="soft">…{each.last4}</span>
                  </>
                ),
              },
              { name: 'Role', show: each => each.role },
              { name: 'Expires', show: each => <When at={each.expiresAt} none="never" /> },
              { name: 'Created', show: each => <When at={each.createdAt} /> },
              { name: 'Last used', show: each => <When at={each.lastUsedAt} none="never" relative /> },
              {
                name: 'Actions',
                show: each =>
                  may && (
                    <Confirm
                      label="Revoke"
                      danger
                      title={`Revoke ${each.name}?`}
                      sure="Revoke"
                      act={async () => {
                        await got(api.DELETE('/settings/api-keys/{id}', byId(each.id)))
                        await list.reload()
                      }}
                    >
                      <p>Programs that use it are refused from now on.</p>
                    </Confirm>
                  ),
              },
            ]}
          />
        )}
      </Sought>
      {may && (
        <Section title="New API key">
          <Form
            act={act}
            label="Create key"
            submit={async () => {
              setMade(
                (
                  await got(
                    api.POST('/settings/api-keys', {
                      body: { ...draft, expiresAt: draft.expiresAt ? new Date(draft.expiresAt).toISOString() : null },
                    }),
                  )
                ).key,
              )
              forget({ ...draft, name: '', expiresAt: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field
                label="Name"
                required
                hint="The program that uses it."
                value={draft.name}
                set={name => set({ name })}
                pointer="/name"
              />
              <Field
                label="Role"
                value={draft.role}
                set={role => set({ role: role as Role })}
                options={choices(roles)}
                pointer="/role"
              />
              <Field
                label="Expires"
                type="datetime-local"
                hint="In your time zone. Empty: never."
                value={draft.expiresAt}
                set={expiresAt => set({ expiresAt })}
                pointer="/expiresAt"
              />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}

// --- channels ---------------------------------------------------------------------------------------

function Channels() {
  const ways = useLoaded(() => got(api.GET('/settings/channels')), [])
  return (
    <Shown of={ways}>
      {({ data }) => (
        <>
          {data.map(way => (
            <Channel key={way.channel} way={way} reload={ways.reload} />
          ))}
        </>
      )}
    </Shown>
  )
}

function Channel({ way, reload }: { way: Schemas['Way']; reload: () => Promise<void> }) {
  const may = useCan()('settings:write')
  const [found, setFound] = useState<Schemas['Verified'] | null>(null)
  const [changing, setChanging] = useState(false)
  const act = useAct()
  const path = { params: { path: { channel: way.channel } } }
  const renew = async () => {
    setFound(null)
    await reload()
  } // what was found was about the settings of before
  return (
    <Section
      title={CHANNELS[way.channel]}
      actions={
        may && (
          <span class="actions">
            {way.ownSettings && (
              <button
                type="button"
                disabled={act.busy}
                onClick={() =>
                  void act.run(async () => setFound(await got(api.POST('/settings/channels/{channel}/verify', path))))
                }
              >
                Verify
              </button>
            )}
            <button type="button" aria-expanded={changing} onClick={() => setChanging(!changing)}>
              Use your own provider
            </button>
            {way.ownSettings && (
              <Confirm
                label="Remove"
                danger
                title="Remove these settings?"
                act={async () => {
                  await got(api.DELETE('/settings/channels/{channel}', path))
                  await renew()
                }}
              >
                <p>Messages then go through the operator’s provider, if there is one.</p>
              </Confirm>
            )}
          </span>
        )
      }
    >
      <p>
        {way.provider ? (
          <>
            Sends through <b>{way.provider}</b>
            {way.ownSettings ? ', with your own settings' : ''}.
            {!way.reports && way.provider !== 'sandbox' && ' It does not report deliveries.'}
          </>
        ) : (
          'Not set up: messages on this channel fail.'
        )}
      </p>
      <Refused problem={act.problem} />
      {found && (
        <div role="status">
          {found.ok ? (
            <p>
              <Status value="ACTIVE" /> Messages can be sent.
            </p>
          ) : (
            <p>
              <Status value="FAILED" /> Messages cannot be sent.
            </p>
          )}
          <ul>
            {found.findings.map(one => (
              <li key={one.code}>{one.message}</li>
            ))}
          </ul>
        </div>
      )}
      {changing && (
        <ChannelForm
          way={way}
          done={async () => {
            setChanging(false)
            await renew()
          }}
        />
      )}
    </Section>
  )
}

function ChannelForm({ way, done }: { way: Schemas['Way']; done: () => Promise<void> }) {
  const [draft, change, forget] = useDraft<Record<string, string>>(`channel.${way.channel}`, {
    provider: way.providers[0]!.name,
  })
  const [secrets, setSecrets] = useState<Record<string, string>>({}) // which are kept nowhere
  const { provider, ...values } = { ...draft, ...secrets }
  const act = useAct()
  const chosen = way.providers.find(each => each.name === provider)!
  return (
    <Form
      act={act}
      label="Save"
      submit={async () => {
        const given = Object.fromEntries(
          chosen.fields.filter(({ name }) => values[name]).map(({ name }) => [name, values[name]]),
        )
        await got(
          api.PUT('/settings/channels/{channel}', {
            params: { path: { channel: way.channel } },
            body: { ...given, provider: chosen.name },
          }),
        )
        forget()
        await done()
      }}
    >
      <Field
        label="Provider"
        value={provider!}
        set={provider => change({ provider })}
        options={way.providers.map(({ name }) => [name, name] as const)}
        pointer="/provider"
      />
      {chosen.fields.map(({ name, label, secret }) => (
        <Field
          key={name}
          label={label}
          {...(secret ? { type: 'password', autocomplete: 'off' } : {})}
          value={values[name] ?? ''}
          set={value => (secret ? setSecrets({ ...secrets, [name]: value }) : change({ [name]: value }))}
          pointer={`/${name}`}
        />
      ))}
    </Form>
  )
}

// --- suppressions and audit -------------------------------------------------------------------------

const REASONS = [
  'unsubscribed',
  'bounced',
  'complained',
  'stopped',
  'manual',
  'erased',
] as const satisfies readonly Schemas['Suppression']['reason'][]

function Suppressions() {
  const { query } = useLocation()
  const of = (name: string) => query.get(name) || undefined
  const filters = {
    channel: of('channel') as keyof typeof CHANNELS | undefined,
    reason: of('reason') as Schemas['Suppression']['reason'] | undefined,
    address: of('address'),
    ...days(query),
  }
  const list = useListed(
    cursor => got(api.GET('/suppressions', { params: { query: { ...filters, cursor, limit: 50 } } })),
    [query.toString()],
  )
  const [draft, set, forget] = useDraft('suppression', { channel: 'email' as keyof typeof CHANNELS, address: '' })
  const act = useAct()
  const may = useCan()('suppressions:write')
  return (
    <>
      <Filters>
        <Search label="Search" name="address" value={filters.address ?? ''} placeholder="full address" />
        <Choice label="Channel" name="channel" value={filters.channel ?? ''} options={Object.entries(CHANNELS)} />
        <Choice label="Reason" name="reason" value={filters.reason ?? ''} options={REASONS} />
        <Days />
      </Filters>
      <Table
        caption="Suppressed addresses"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No addresses match. <Link to="/settings/suppressions">Show all</Link>
            </p>
          ) : (
            <p>No suppressed addresses. Bounces, complaints and opt-outs appear here.</p>
          )
        }
        columns={[
          { name: 'Address', show: each => each.address ?? <span class="soft">only its hash is kept</span> },
          { name: 'Channel', show: each => each.channel },
          { name: 'Reason', show: each => each.reason.replaceAll('_', ' ') },
          { name: 'Since', show: each => <When at={each.createdAt} /> },
          {
            name: 'Actions',
            show: each =>
              may && (
                <Confirm
                  label="Lift"
                  title="Lift this suppression?"
                  act={async () => {
                    await got(api.DELETE('/suppressions/{id}', byId(each.id)))
                    await list.reload()
                  }}
                >
                  <p>Messages go to this address again. Do this only if you know that the person wants it.</p>
                </Confirm>
              ),
          },
        ]}
      />
      {may && (
        <Section title="Suppress an address">
          <Form
            act={act}
            label="Suppress address"
            submit={async () => {
              await got(api.POST('/suppressions', { body: draft }))
              forget({ ...draft, address: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field
                label="Address"
                required
                value={draft.address}
                set={address => set({ address })}
                pointer="/address"
              />
              <Field
                label="Channel"
                value={draft.channel}
                set={channel => set({ channel: channel as 'email' })}
                options={Object.entries(CHANNELS)}
                pointer="/channel"
              />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}

/** Not asked for on a plan that does not have it. */
function Audit() {
  const plan = useLoaded(() => got(api.GET('/billing/plan')), [])
  return (
    <Shown of={plan}>
      {({ plan: own, available }) => {
        const least = available.find(each => each.features.includes('audit_logs'))
        if (available.find(each => each.plan === own)?.features.includes('audit_logs') ?? !least) return <Trail />
        return (
          <p class="empty">
            The audit trail is part of the {least?.plan} plan. <Link to="/settings/plan">See plans</Link>
          </p>
        )
      }}
    </Shown>
  )
}

function Trail() {
  const [verdict, setVerdict] = useState<Schemas['AuditLogsVerification'] | null>(null)
  const act = useAct()
  const { query } = useLocation()
  const of = (name: string) => query.get(name) || undefined
  const filters = {
    action: of('action'),
    actor: of('actor'),
    resourceId: of('resourceId'),
    resourceType: of('resourceType'),
    ...days(query),
  }
  const list = useListed(
    cursor => got(api.GET('/audit-logs', { params: { query: { ...filters, cursor, limit: 50 } } })),
    [query.toString()],
  )
  return (
    <>
      <p class="buttons">
        <button
          type="button"
          disabled={act.busy}
          onClick={() => void act.run(async () => setVerdict(await got(api.GET('/audit-logs/verify'))))}
        >
          Verify trail
        </button>
        <button
          type="button"
          disabled={act.busy}
          onClick={() => void act.run(() => download('/audit-logs/export', 'audit-logs.ndjson'))}
        >
          Export all
        </button>
      </p>
      <Refused problem={act.problem} />
      {verdict && (
        <p role="status">
          {verdict.whole ? (
            <>
              <Status value="ACTIVE" /> Intact: {verdict.entries} entries, none changed or missing.
            </>
          ) : (
            <>
              <Status value="FAILED" /> {verdict.fault?.message}
            </>
          )}
        </p>
      )}
      <Filters>
        <Search label="Action" name="action" value={filters.action ?? ''} placeholder="contact.created" />
        <Search label="Resource" name="resourceId" value={filters.resourceId ?? ''} placeholder="an ID" />
        <Search label="Resource type" name="resourceType" value={filters.resourceType ?? ''} placeholder="contact" />
        <Days />
        {filters.actor && (
          <button type="button" onClick={() => narrow({ actor: '' })}>
            By anyone
          </button>
        )}
      </Filters>
      <Table
        caption="Entries, newest first"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No entries match. <Link to="/settings/audit">Show all</Link>
            </p>
          ) : (
            <p>No changes yet. They appear when a member or a program changes something.</p>
          )
        }
        columns={[
          { name: 'Time', show: each => <When at={each.createdAt} /> },
          {
            name: 'Who',
            show: ({ actor }) =>
              actor.id ? <Link to={`/settings/audit?actor=${actor.id}`}>{actor.name}</Link> : actor.name,
          },
          { name: 'Action', show: each => each.action.replaceAll('.', ' ').replaceAll('_', ' ') },
          { name: 'Resource', show: each => <code>{each.resource.id}</code> },
          {
            name: 'Changes',
            class: 'wide',
            show: each =>
              Object.entries(each.changes ?? {})
                .map(([name, [before, after]]) => `${name}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`)
                .join('; '),
          },
        ]}
      />
    </>
  )
}
