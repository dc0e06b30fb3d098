// Members and API keys, each with a role.
import { useState } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { fields, useAct, useDraft, useListed } from '../data'
import { useCan, useMe } from '../me'
import { MOST, Sought } from '../sought'
import { Check, Confirm, Field, Form, Secret, Section, Status, Table, When } from '../ui'

const ROLES = ['viewer', 'editor', 'admin', 'owner'] as const
type Role = (typeof ROLES)[number]

/** The roles that one may give and take: nobody grants more than they hold. */
function useGrantable(): readonly Role[] {
  const { role } = useMe()
  return ROLES.slice(0, ROLES.findIndex(each => each === role) + 1)
}

const choices = (roles: readonly Role[]) => roles.map(role => [role, role] as const)

export function Members() {
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

export function Keys() {
  const list = useListed(
    cursor => got(api.GET('/settings/api-keys', { params: { query: { cursor, limit: MOST } } })),
    ['keys'],
  )
  const [draft, set, forget] = useDraft('key', { name: '', role: 'editor' as Role, expiresAt: '' })
  const field = fields(draft, set)
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
              <Field label="Name" required hint="The program that uses it." {...field('name')} />
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
                {...field('expiresAt')}
              />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}
