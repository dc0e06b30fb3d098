// Members and API keys, each with a role.
import { useState } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { fields, useDraft, useListed } from '../data'
import { useCan, useMe } from '../me'
import { page } from '../names'
import { Secret } from '../secret'
import { leave } from '../session'
import { Sought } from '../sought'
import { Check, Confirm, Field, Form, Section, Table, When, CREATED, STATUS } from '../ui'

const ROLES = ['viewer', 'editor', 'admin', 'owner'] as const
type Role = (typeof ROLES)[number]

/** The roles that one may give and take: nobody grants more than they hold. */
function useGrantable(): readonly Role[] {
  const { role } = useMe()
  return ROLES.slice(0, ROLES.findIndex(each => each === role) + 1)
}

/** What each role may, in the form of another's. */
const ABOUT = 'Viewers see, editors change, admins also manage members, keys and channels, owners also the plan.'
const choices = (roles: readonly Role[]) => roles.map(role => [role, role] as const)

export function Members() {
  const list = useListed(cursor => got(api.GET('/memberships', page(cursor))), ['members'])
  const may = useCan()('memberships:write')
  const roles = useGrantable()
  const { user, reload } = useMe()
  const [draft, set, forget] = useDraft('invitation', { email: '', role: 'editor' as Role })
  const field = fields(draft, set)
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
            what="members"
            of={found}
            empty={may && 'Invite one below.'}
            columns={[
              ['Name', each => each.name ?? <span class="soft">invited</span>],
              ['Email', each => each.email ?? <span class="soft">hidden</span>],
              [
                'Role',
                each => (
                  <>
                    {each.role}
                    {each.role === 'editor' && each.sendsBroadcasts && ', sends broadcasts'}
                  </>
                ),
              ],
              STATUS,
              [
                'Actions',
                each => {
                  const isOwn = user !== null && each.userId === user.id
                  const mayChange = may && roles.includes(each.role)
                  if (!isOwn && !mayChange) return null
                  const [label, title, follows] = isOwn
                    ? [
                        'Leave workspace',
                        'Leave this workspace?',
                        'Your sessions in it end, and the API keys that you created stop working. You are then signed out, and what you did not save in this tab is lost, in other workspaces too.',
                      ]
                    : each.status === 'PENDING'
                      ? ['Revoke', 'Revoke this invitation?', 'Its link stops working.']
                      : [
                          'Remove',
                          `Remove ${each.name ?? 'this member'}?`,
                          'Their sessions in this workspace end at once, and their API keys stop working.',
                        ]
                  return (
                    <span class="actions">
                      {mayChange && each.status === 'ACTIVE' && (
                        <ChangeMember
                          member={each}
                          roles={roles}
                          done={async () => {
                            if (isOwn) await reload() // may do less by now
                            await list.reload()
                          }}
                        />
                      )}
                      <Confirm
                        label={label}
                        danger
                        title={title}
                        act={() =>
                          got(api.DELETE('/memberships/{id}', byId(each.id))).then(isOwn ? leave : list.reload)
                        }
                      >
                        <p>{follows}</p>
                      </Confirm>
                    </span>
                  )
                },
              ],
            ]}
          />
        )}
      </Sought>
      {may && (
        <Section title="Invite">
          <Form
            label="Send invitation"
            success="The invitation is on its way."
            submit={async () => {
              await got(api.POST('/memberships/invitations', { body: draft }))
              forget({ ...draft, email: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field label="Email" type="email" required {...field('email')} />
              <Field label="Role" {...field('role')} options={choices(roles)} hint={ABOUT} />
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
        hint={ABOUT}
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
  const list = useListed(cursor => got(api.GET('/settings/api-keys', page(cursor))), ['keys'])
  const [draft, set, forget] = useDraft('key', { name: '', role: 'editor' as Role, expiresAt: '' })
  const field = fields(draft, set)
  const [made, setMade] = useState('')
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
            what="API keys"
            of={found}
            empty="Programs need one to use the API."
            columns={[
              [
                'Name',
                each => (
                  <>
                    {each.name} <span class="soft">…{each.last4}</span>
                  </>
                ),
              ],
              ['Role', each => each.role],
              ['Expires', each => <When at={each.expiresAt} none="never" />],
              CREATED,
              ['Last used', each => <When at={each.lastUsedAt} none="never" relative />],
              [
                'Actions',
                each =>
                  may && (
                    <Confirm
                      label="Revoke"
                      danger
                      title={`Revoke ${each.name}?`}
                      act={() => got(api.DELETE('/settings/api-keys/{id}', byId(each.id))).then(list.reload)}
                    >
                      <p>Programs that use it are refused from now on.</p>
                    </Confirm>
                  ),
              ],
            ]}
          />
        )}
      </Sought>
      {may && (
        <Section title="New API key">
          <Form
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
              <Field label="Role" {...field('role')} options={choices(roles)} hint={ABOUT} />
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
