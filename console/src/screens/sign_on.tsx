// Single sign-on: the domains whose people join the workspace when they sign in for the first time.
import { api, got } from '../api'
import { fields, useDraft, useListed } from '../data'
import { useCan } from '../me'
import { page } from '../names'
import { has } from '../session'
import { useState } from 'preact/hooks'
import { Confirm, Field, Form, Link, Section, Table, When } from '../ui'

const ROLES = [
  ['viewer', 'viewer'],
  ['editor', 'editor'],
] as const
type Role = (typeof ROLES)[number][0]

const claim = (domain: string, role: Role) =>
  got(api.PUT('/settings/sign-in-domains/{domain}', { params: { path: { domain } }, body: { role } }))

export function SignOn() {
  const list = useListed(() => got(api.GET('/settings/sign-in-domains')), [])
  const members = useListed(cursor => got(api.GET('/memberships', page(cursor))), ['members'])
  const [draft, set, forget] = useDraft('sign-in-domain', { domain: '', role: 'viewer' as Role })
  const field = fields(draft, set)
  const may = useCan()('workspaces:write')
  return (
    <>
      <p>
        {has('sign-on')
          ? 'Members can sign in with the identity provider that this installation is connected to.'
          : 'This installation is not connected to an identity provider; its operator can connect one. Domains take effect then.'}{' '}
        Anyone who signs in there for the first time, with an address at one of these domains, joins this workspace.
      </p>
      <Table
        what="domains"
        caption="Domains, in alphabetical order"
        of={list}
        id={each => each.domain}
        none="No domains claimed: people join by invitation."
        columns={[
          ['Domain', each => each.domain],
          ['Role', each => each.role],
          [
            'Claimed by',
            each => members.rows?.find(one => one.userId === each.claimedBy)?.name ?? <code>{each.claimedBy}</code>,
          ],
          ['Since', each => <When at={each.createdAt} />],
          [
            'Actions',
            each =>
              may && (
                <span class="actions">
                  <ChangeRole key={each.role} of={each} done={list.reload} />
                  <Confirm
                    label="Release"
                    danger
                    title={`Release ${each.domain}?`}
                    act={() =>
                      got(
                        api.DELETE('/settings/sign-in-domains/{domain}', { params: { path: { domain: each.domain } } }),
                      ).then(list.reload)
                    }
                  >
                    <p>
                      People who sign in from there for the first time no longer join this workspace. Members from there
                      stay. Another workspace may claim it.
                    </p>
                  </Confirm>
                </span>
              ),
          ],
        ]}
      />
      {may && (
        <Section title="Claim a domain">
          <Form
            label="Claim domain"
            submit={async () => {
              await claim(draft.domain.trim(), draft.role)
              forget()
              await list.reload()
            }}
          >
            <div class="columns">
              <Field
                label="Domain"
                required
                placeholder="acme.example"
                hint={
                  <>
                    The domain of your own address, which has to be verified:{' '}
                    <Link to="/settings/account">Account</Link>.
                  </>
                }
                {...field('domain')}
              />
              <Field label="Role of new members" {...field('role')} options={ROLES} />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}

function ChangeRole({ of, done }: { of: { domain: string; role: Role }; done: () => Promise<void> }) {
  const [role, setRole] = useState(of.role)
  return (
    <Confirm
      label="Change role"
      title={`Change the role for ${of.domain}?`}
      act={async () => {
        await claim(of.domain, role)
        await done()
      }}
    >
      <p>It applies to people who join from now on. Current members keep their role.</p>
      <Field label="Role" value={role} set={next => setRole(next as Role)} options={ROLES} pointer="/role" />
    </Confirm>
  )
}
