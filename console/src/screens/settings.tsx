// Settings: the workspace, its members and keys, channels, event endpoints, suppressions, topics, the audit trail and the plan.
import { useState } from 'preact/hooks'
import { api, got, tagged, type Schemas } from '../api'
import { useAct, useDraft, useListed, useLoaded } from '../data'
import { Later, reaching } from '../later'
import { useCan, useMe } from '../me'
import { CHANNELS } from '../words'
import { Workspace } from './workspace'
import { ago, Check, Confirm, Copy, Facts, Field, Form, Link, Refused, Screen, Section, Shown, Status, Table, When } from '../ui'

const PARTS = [
  ['workspace', 'Workspace', '', () => <Workspace />], ['account', 'Account', '', () => <Account />], ['members', 'Members', 'memberships:read', () => <Members />],
  ['keys', 'API keys', 'api_keys:read', () => <Keys />], ['channels', 'Channels', 'settings:read', () => <Channels />], ['endpoints', 'Event endpoints', 'event_endpoints:read', () => <Endpoints />],
  ['suppressions', 'Suppressions', 'suppressions:read', () => <Suppressions />], ['topics', 'Topics', 'contacts:read', () => <Later load={reaching} show={({ Topics }) => <Topics />} />], ['audit', 'Audit trail', 'audit_logs:read', () => <Audit />], ['plan', 'Plan', 'billing:read', () => <Plan />],
] as const
const ROLES = ['viewer', 'editor', 'admin', 'owner'] as const
type Role = (typeof ROLES)[number]

export function Settings({ part }: { part: string }) {
  const may = useCan()
  const mine = PARTS.filter(([, , needs]) => !needs || may(needs))
  const [, name, , show] = mine.find(([key]) => key === part) ?? mine[0]!
  return <Screen title={name} lead="Settings">
    <nav class="tabs" aria-label="Settings">{mine.map(([key, label]) => <Link key={key} to={`/settings/${key}`} aria-current={key === part ? 'page' : undefined}>{label}</Link>)}</nav>
    {show()}
  </Screen>
}

// --- account ----------------------------------------------------------------------------------------

function Account() {
  const { user, reload } = useMe()
  const [draft, setDraft] = useState({ currentPassword: '', newPassword: '' })
  const [done, setDone] = useState('')
  const act = useAct()
  const verifying = useAct()
  if (!user) return null
  return <>
    <Facts of={[['Name', user.name], ['Email', user.email], ['Verified', user.emailVerified ? 'yes' : <>no <button type="button" class="small" disabled={verifying.busy} onClick={() => void verifying.run(async () => { await got(api.POST('/auth/email/verification')); setDone('A mail with a link is on its way.'); await reload() })}>Send the mail again</button></>]]} />
    <Refused problem={verifying.problem} />
    {done && <p role="status">{done}</p>}
    <Section title="Change the password">
      <Form act={act} label="Change it" known={['/currentPassword', '/newPassword']} submit={async () => {
        await got(api.PATCH('/auth/password', { body: draft }))
        setDraft({ currentPassword: '', newPassword: '' })
        setDone('The password is changed, and your other sessions have ended.')
      }}>
        <input class="unseen" type="email" autocomplete="username" value={user.email} readOnly tabIndex={-1} aria-hidden="true" />
        <Field label="Current password" type="password" autocomplete="current-password" required value={draft.currentPassword} set={currentPassword => setDraft({ ...draft, currentPassword })} problem={act.problem} pointer="/currentPassword" />
        <Field label="New password" type="password" autocomplete="new-password" required hint="Ten characters or more." value={draft.newPassword} set={newPassword => setDraft({ ...draft, newPassword })} problem={act.problem} pointer="/newPassword" />
      </Form>
    </Section>
  </>
}

// --- members and keys -------------------------------------------------------------------------------

function Members() {
  const list = useListed(cursor => got(api.GET('/memberships', { params: { query: { cursor, limit: 50 } } })), [])
  const may = useCan()('memberships:write')
  const [draft, set, forget] = useDraft('invitation', { email: '', role: 'editor' })
  const act = useAct()
  return <>
    <Table caption="Members" of={list} id={each => each.id} empty={<p>Nobody.</p>} columns={[
      { name: 'Name', show: each => each.name ?? <span class="soft">invited</span> },
      { name: 'Email', show: each => each.email ?? <span class="soft">hidden</span> },
      { name: 'Role', show: each => <>{each.role}{each.role === 'editor' && each.sendsBroadcasts && ', sends broadcasts'}</> },
      { name: 'Status', show: each => <Status value={each.status} /> },
      { name: 'Actions', show: each => may && <span class="actions">{each.status === 'ACTIVE' && <ChangeMember member={each} done={list.reload} />}<Confirm label={each.status === 'PENDING' ? 'Withdraw' : 'Remove'} danger title={each.status === 'PENDING' ? 'Withdraw this invitation?' : `Remove ${each.name ?? 'this member'}?`} sure={each.status === 'PENDING' ? 'Withdraw' : 'Remove'}
        act={async () => { await got(api.DELETE('/memberships/{id}', { params: { path: { id: each.id } } })); await list.reload() }}>
        <p>{each.status === 'PENDING' ? 'Its link no longer works.' : 'Their sessions in this workspace end at once, and their API keys stop working.'}</p></Confirm></span> },
    ]} />
    {may && <Section title="Invite"><Form act={act} label="Send the invitation" known={['/email', '/role']} submit={async () => {
      await got(api.POST('/memberships/invitations', { body: draft as never }))
      forget({ ...draft, email: '' })
      await list.reload()
    }}><div class="columns">
        <Field label="Email" type="email" required value={draft.email} set={email => set({ email })} problem={act.problem} pointer="/email" />
        <Field label="Role" value={draft.role} set={role => set({ role })} options={ROLES.map(role => [role, role] as const)} problem={act.problem} pointer="/role" />
      </div></Form></Section>}
  </>
}

function ChangeMember({ member, done }: { member: Schemas['Membership']; done: () => Promise<void> }) {
  const [role, setRole] = useState<string>(member.role)
  const [sends, setSends] = useState(member.sendsBroadcasts)
  const path = { params: { path: { id: member.id } } }
  return <Confirm label="Change" title={`Change what ${member.name ?? 'this member'} may do?`} act={async () => {
    const { tag } = await tagged(api.GET('/memberships/{id}', path))
    await got(api.PATCH('/memberships/{id}', { ...path, headers: { 'If-Match': tag }, body: { role, sendsBroadcasts: sends } as never }))
    await done()
  }}>
    <p>It holds at once, also for API keys that the member made.</p>
    <Field label="Role" value={role} set={setRole} options={ROLES.map(each => [each, each] as const)} />
    {role === 'editor' && <Check label="May send broadcasts, too" value={sends} set={setSends} />}
  </Confirm>
}

function Secret({ name, value, forget }: { name: string; value: string; forget: () => void }) {
  return <div class="note" role="status"><p>{name}. It is shown only now: store it where your secrets are.</p><p class="copyable"><code>{value}</code> <Copy text={value} /> <button type="button" class="small" onClick={forget}>I have stored it</button></p></div>
}

function Keys() {
  const list = useListed(cursor => got(api.GET('/settings/api-keys', { params: { query: { cursor, limit: 50 } } })), [])
  const [draft, set, forget] = useDraft('key', { name: '', role: 'editor' as Role })
  const [made, setMade] = useState('')
  const act = useAct()
  const may = useCan()('api_keys:write')
  return <>
    {made && <Secret name="The new key" value={made} forget={() => setMade('')} />}
    <Table caption="API keys" of={list} id={each => each.id} empty={<p>There is no key yet. A program needs one to use the API.</p>} columns={[
      { name: 'Name', show: each => each.name }, { name: 'Role', show: each => each.role },
      { name: 'Made', show: each => <When at={each.createdAt} /> }, { name: 'Used', show: each => (each.lastUsedAt ? ago(each.lastUsedAt) : 'never') },
      { name: 'Actions', show: each => may && <Confirm label="Revoke" danger title={`Revoke ${each.name}?`} sure="Revoke" act={async () => { await got(api.DELETE('/settings/api-keys/{id}', { params: { path: { id: each.id } } })); await list.reload() }}><p>Programs that use it are refused from now on.</p></Confirm> },
    ]} />
    {may && <Section title="New key"><Form act={act} label="Make the key" known={['/name', '/role']} submit={async () => {
      setMade((await got(api.POST('/settings/api-keys', { body: draft as never }))).key)
      forget({ ...draft, name: '' })
      await list.reload()
    }}><div class="columns">
        <Field label="Name" required hint="Of the program that uses it." value={draft.name} set={name => set({ name })} problem={act.problem} pointer="/name" />
        <Field label="Role" value={draft.role} set={role => set({ role: role as Role })} options={ROLES.map(role => [role, role] as const)} problem={act.problem} pointer="/role" />
      </div></Form></Section>}
  </>
}

// --- channels and endpoints -------------------------------------------------------------------------

const PROVIDERS: Record<string, readonly (readonly [string, string, boolean])[]> = {
  smtp: [['url', 'URL, smtps://user:password@host', true], ['from', 'Sender', false]], resend: [['apiKey', 'API key', true], ['from', 'Sender', false], ['webhookSecret', 'Webhook secret', true]],
  twilio: [['accountSid', 'Account SID', false], ['authToken', 'Auth token', true], ['from', 'Number', false], ['messagingServiceSid', 'or messaging service SID', false]],
}

function Channels() {
  const ways = useLoaded(() => got(api.GET('/settings/channels')), [])
  return <Shown of={ways}>{({ data }) => <>{data.map(way => <Channel key={way.channel} way={way} reload={ways.reload} />)}</>}</Shown>
}

function Channel({ way, reload }: { way: Schemas['Way']; reload: () => Promise<void> }) {
  const may = useCan()('settings:write')
  const [found, setFound] = useState<Schemas['Verified'] | null>(null)
  const [changing, setChanging] = useState(false)
  const act = useAct()
  const path = { params: { path: { channel: way.channel } } }
  return <Section title={CHANNELS[way.channel]} actions={may && <span class="actions">
    {way.ownSettings && <button type="button" disabled={act.busy} onClick={() => void act.run(async () => setFound(await got(api.POST('/settings/channels/{channel}/verify', path))))}>Verify</button>}
    <button type="button" aria-expanded={changing} onClick={() => setChanging(!changing)}>Provider of your own</button>
    {way.ownSettings && <Confirm label="Remove" danger title="Remove these settings?" act={async () => { await got(api.DELETE('/settings/channels/{channel}', path)); await reload() }}><p>Messages then go through the operator’s provider, if there is one.</p></Confirm>}
  </span>}>
    <p>{way.provider ? <>Goes through <b>{way.provider}</b>{way.ownSettings ? ', with your own settings' : ''}.{!way.reports && way.provider !== 'sandbox' && ' It does not report what was delivered.'}</> : 'Not set up: messages on this channel fail.'}</p>
    <Refused problem={act.problem} />
    {found && <div role="status">{found.ok ? <p><Status value="ACTIVE" /> Messages can be sent.</p> : <p><Status value="FAILED" /> Messages cannot be sent.</p>}<ul>{found.findings.map(one => <li key={one.code}>{one.message}</li>)}</ul></div>}
    {changing && <ChannelForm channel={way.channel} done={async () => { setChanging(false); await reload() }} />}
  </Section>
}

function ChannelForm({ channel, done }: { channel: Schemas['Way']['channel']; done: () => Promise<void> }) {
  const choices = channel === 'email' ? ['smtp', 'resend'] : ['twilio']
  const [provider, setProvider] = useState(choices[0]!)
  const [values, setValues] = useState<Record<string, string>>({})
  const act = useAct()
  const fields = PROVIDERS[provider] ?? []
  return <Form act={act} label="Store" known={fields.map(([name]) => `/${name}`)} submit={async () => {
    const given = Object.fromEntries(fields.filter(([name]) => values[name]).map(([name]) => [name, values[name]]))
    await got(api.PUT('/settings/channels/{channel}', { params: { path: { channel } }, body: { provider, ...given } as never }))
    await done()
  }}>
    <Field label="Provider" value={provider} set={setProvider} options={choices.map(each => [each, each] as const)} />
    {fields.map(([name, label, secret]) => <Field key={name} label={label} {...(secret ? { type: 'password', autocomplete: 'off' } : {})} value={values[name] ?? ''} set={value => setValues({ ...values, [name]: value })} problem={act.problem} pointer={`/${name}`} />)}
  </Form>
}

function Endpoints() {
  const list = useListed(cursor => got(api.GET('/event-endpoints', { params: { query: { cursor, limit: 50 } } })), [])
  const [draft, set, forget] = useDraft('endpoint', { url: '', description: '' })
  const [secret, setSecret] = useState('')
  const act = useAct()
  const may = useCan()('event_endpoints:write')
  return <>
    {secret && <Secret name="The secret that signs the events" value={secret} forget={() => setSecret('')} />}
    {list.rows?.length === 0 && <p class="empty">Nobody is told what happens here yet. Add the URL of your own program.</p>}
    <Refused problem={list.problem} />
    {list.rows?.map(each => <Endpoint key={each.id} of={each} reload={list.reload} shown={setSecret} />)}
    {may && <Section title="New endpoint"><Form act={act} label="Add it" known={['/url', '/description']} submit={async () => {
      setSecret((await got(api.POST('/event-endpoints', { body: { url: draft.url, description: draft.description || null } as never }))).secret)
      forget()
      await list.reload()
    }}>
      <Field label="URL" type="url" required value={draft.url} set={url => set({ url })} problem={act.problem} pointer="/url" />
      <Field label="Description" value={draft.description} set={description => set({ description })} problem={act.problem} pointer="/description" />
    </Form></Section>}
  </>
}

function Endpoint({ of, reload, shown }: { of: Schemas['Endpoint']; reload: () => Promise<void>; shown: (secret: string) => void }) {
  const may = useCan()('event_endpoints:write')
  const [open, setOpen] = useState(false)
  const [replayed, setReplayed] = useState('')
  const path = { params: { path: { id: of.id } } }
  const act = useAct()
  return <Section title={of.description ?? of.url} actions={<span class="actions">
    <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>Attempts</button>
    {may && <button type="button" disabled={act.busy} onClick={() => void act.run(async () => { await got(api.PATCH('/event-endpoints/{id}', { ...path, body: { enabled: !of.enabled } as never })); await reload() })}>{of.enabled ? 'Disable' : 'Enable'}</button>}
    {may && <Confirm label="Replay a day" title="Send the events of the last day again?" act={async () => { const answer = await got(api.POST('/event-endpoints/{id}/replay', { ...path, body: { since: new Date(Date.now() - 86_400_000).toISOString() } })); setReplayed(`${answer.replayed} events are sent again.`) }}><p>All that failed or was missed since this time yesterday is sent again.</p></Confirm>}
    {may && <Confirm label="New secret" title="Make a new secret?" act={async () => { shown((await got(api.POST('/event-endpoints/{id}/rotate', path))).secret); await reload() }}><p>Events are signed with the new one from now on.</p></Confirm>}
    {may && <Confirm label="Delete" danger title="Delete this endpoint?" act={async () => { await got(api.DELETE('/event-endpoints/{id}', path)); await reload() }}><p>Nothing is sent to it any more, and its attempts go.</p></Confirm>}
  </span>}>
    <p><code>{of.url}</code> {of.enabled ? <Status value="ACTIVE" /> : <><Status value="PAUSED" /> {of.disabledReason}</>}{of.failingSince && <> failing since <When at={of.failingSince} /></>}</p>
    <p class="soft">{of.types.length ? of.types.join(', ') : 'All events.'}</p>
    {replayed && <p role="status">{replayed}</p>}
    <Refused problem={act.problem} />
    {open && <EventAttempts id={of.id} />}
  </Section>
}

function EventAttempts({ id }: { id: string }) {
  const list = useListed(cursor => got(api.GET('/event-endpoints/{id}/attempts', { params: { path: { id }, query: { cursor, limit: 20 } } })), [id], 5000)
  const may = useCan()('event_endpoints:write')
  return <Table caption="Events sent" of={list} id={each => each.id} empty={<p>No event has been sent to it yet.</p>} columns={[
    { name: 'Event', show: each => each.type }, { name: 'Status', show: each => <Status value={each.status} /> }, { name: 'At', show: each => <When at={each.createdAt} /> },
    { name: 'Answer', class: 'wide', show: each => each.reason?.detail ?? each.tries.at(-1)?.status ?? '–' },
    { name: 'Actions', show: each => may && each.status === 'FAILED' && <Confirm label="Send again" title="Send this event again?" act={async () => { await got(api.POST('/event-endpoints/{id}/attempts/{attemptId}/replay', { params: { path: { id, attemptId: each.id } } })); await list.reload() }}><p>It is sent under the same webhook-id.</p></Confirm> },
  ]} />
}

// --- suppressions, audit, plan ----------------------------------------------------------------------

function Suppressions() {
  const list = useListed(cursor => got(api.GET('/suppressions', { params: { query: { cursor, limit: 50 } } })), [])
  const [draft, set, forget] = useDraft('suppression', { channel: 'email' as keyof typeof CHANNELS, address: '' })
  const act = useAct()
  const may = useCan()('suppressions:write')
  return <>
    <Table caption="Suppressed addresses" of={list} id={each => each.id} empty={<p>No address is suppressed. Bounces, complaints and opt-outs appear here.</p>} columns={[
      { name: 'Address', show: each => each.address ?? <span class="soft">known by its hash alone</span> }, { name: 'Channel', show: each => each.channel }, { name: 'Reason', show: each => each.reason.replaceAll('_', ' ') },
      { name: 'Since', show: each => <When at={each.createdAt} /> },
      { name: 'Actions', show: each => may && <Confirm label="Lift" title="Lift this suppression?" act={async () => { await got(api.DELETE('/suppressions/{id}', { params: { path: { id: each.id } } })); await list.reload() }}><p>Messages go to this address again. Do this only when you know that the person wants it.</p></Confirm> },
    ]} />
    {may && <Section title="Suppress an address"><Form act={act} label="Suppress it" known={['/address']} submit={async () => { await got(api.POST('/suppressions', { body: draft })); forget({ ...draft, address: '' }); await list.reload() }}><div class="columns">
      <Field label="Address" required value={draft.address} set={address => set({ address })} problem={act.problem} pointer="/address" />
      <Field label="Channel" value={draft.channel} set={channel => set({ channel: channel as 'email' })} options={Object.entries(CHANNELS)} />
    </div></Form></Section>}
  </>
}

/** Not asked for on a plan that does not have it. */
function Audit() {
  const plan = useLoaded(() => got(api.GET('/billing/plan')), [])
  return <Shown of={plan}>{({ plan: own, available }) => {
    const least = available.find(each => each.features.includes('audit_logs'))
    if (available.find(each => each.plan === own)?.features.includes('audit_logs') ?? !least) return <Trail />
    return <p class="empty">The audit trail is part of the plan {least?.plan}. <Link to="/settings/plan">See the plans</Link></p>
  }}</Shown>
}

function Trail() {
  const [verdict, setVerdict] = useState<Schemas['AuditLogsVerification'] | null>(null)
  const act = useAct()
  const list = useListed(cursor => got(api.GET('/audit-logs', { params: { query: { cursor, limit: 50 } } })), [])
  return <>
    <p><button type="button" disabled={act.busy} onClick={() => void act.run(async () => setVerdict(await got(api.GET('/audit-logs/verify'))))}>Verify the trail</button></p>
    <Refused problem={act.problem} />
    {verdict && <p role="status">{verdict.whole ? <><Status value="ACTIVE" /> Whole: {verdict.entries} entries, none changed or missing.</> : <><Status value="FAILED" /> {verdict.fault?.message}</>}</p>}
    <Table caption="Entries, newest first" of={list} id={each => each.id} empty={<p>Nothing has been changed yet.</p>} columns={[
      { name: 'At', show: each => <When at={each.createdAt} /> }, { name: 'Who', show: each => each.actor.name }, { name: 'Did', show: each => each.action.replaceAll('.', ' ').replaceAll('_', ' ') },
      { name: 'To', show: each => <code>{each.resource.id}</code> }, { name: 'Changes', class: 'wide', show: each => Object.entries(each.changes ?? {}).map(([name, [before, after]]) => `${name}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`).join('; ') },
    ]} />
  </>
}

const limit = (value: number | null) => (value === null ? 'no limit' : value.toLocaleString())

function Plan() {
  const plan = useLoaded(() => got(api.GET('/billing/plan')), [])
  const may = useCan()('billing:write')
  const act = useAct()
  const buy = (wanted: string) => act.run(async () => {
    const back = location.href
    const { checkoutUrl } = await got(api.POST('/billing/checkout', { body: { plan: wanted, successUrl: back, cancelUrl: back } as never }))
    location.assign(checkoutUrl)
  })
  return <Shown of={plan}>{value => <>
    <Facts of={[
      ['Plan', <b>{value.plan}</b>], ['Contacts', `${value.usage.contacts.toLocaleString()} of ${limit(value.limits.contacts)}`], ['Messages this month', `${value.usage.messagesPerMonth.toLocaleString()} of ${limit(value.limits.messagesPerMonth)}`],
      ['Members', `${value.usage.members} of ${limit(value.limits.members)}`], ...(value.sending.dailyLimit === null ? [] : [['Sent today', `${value.sending.sentToday.toLocaleString()} of ${limit(value.sending.dailyLimit)}`]] as const), ['Renews', <When at={value.renewsAt} none="–" />],
    ]} />
    <Refused problem={act.problem} />
    <Section title="Plans"><table><thead><tr><th scope="col">Plan</th><th scope="col">Price</th><th scope="col">Contacts</th><th scope="col">Messages a month</th><th scope="col"><span class="unseen">Choose</span></th></tr></thead>
      <tbody>{value.available.map(each => <tr key={each.plan}><td data-name="Plan">{each.plan}</td><td data-name="Price">{(each.price / 100).toLocaleString(undefined, { style: 'currency', currency: each.currency })}</td><td data-name="Contacts">{limit(each.limits.contacts)}</td><td data-name="Messages a month">{limit(each.limits.messagesPerMonth)}</td>
        <td>{each.plan === value.plan ? 'yours' : may && each.price > 0 && <button type="button" disabled={act.busy} onClick={() => void buy(each.plan)}>Choose {each.plan}</button>}</td></tr>)}</tbody></table></Section>
  </>}</Shown>
}
