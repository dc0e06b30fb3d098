// Somebody's account: their address, their password, and their workspaces.
import { useState } from 'preact/hooks'
import { api, got } from '../api'
import { fields, useAct, useDraft, useListed } from '../data'
import { useMe } from '../me'
import { switchTo } from '../session'
import { Facts, Field, Form, Refused, Section, Table, Press, CREATED } from '../ui'

export function Account() {
  const { user, reload } = useMe()
  const [draft, setDraft] = useState({ currentPassword: '', newPassword: '' })
  const field = fields(draft, changes => setDraft({ ...draft, ...changes }))
  const [isSent, setSent] = useState(false)
  const [isChanged, setChanged] = useState(false)
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
                <Press
                  small
                  act={verifying}
                  work={async () => {
                    setSent(false)
                    await got(api.POST('/auth/email/verification'))
                    setSent(true)
                    await reload()
                  }}
                >
                  Resend email
                </Press>
              </>
            ),
          ],
        ]}
      />
      <Refused problem={verifying.problem} />
      {isSent && <p role="status">An email with a link is on its way.</p>}
      <Section title="Change password">
        <Form
          label="Change password"
          extra={isChanged && <span role="status">Password changed. Your other sessions have ended.</span>}
          submit={async () => {
            setChanged(false)
            await got(api.PATCH('/auth/password', { body: draft }))
            setDraft({ currentPassword: '', newPassword: '' })
            setChanged(true)
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
            {...field('currentPassword')}
          />
          <Field
            label="New password"
            type="password"
            autocomplete="new-password"
            required
            hint="At least ten characters."
            {...field('newPassword')}
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
  const field = fields(draft, set)
  const going = useAct()
  return (
    <Section title="Your workspaces">
      <Refused problem={going.problem} />
      <Table
        what="workspaces"
        of={list}
        empty="Create one below."
        columns={[
          ['Name', each => each.name],
          ['Your role', each => each.role],
          CREATED,
          [
            'Actions',
            each =>
              each.id === workspace.id ? (
                'current'
              ) : (
                <Press act={going} work={() => switchTo(each.id)}>
                  Switch
                </Press>
              ),
          ],
        ]}
      />
      <Form
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
          {...field('name')}
          hint="Each workspace has its own contacts, flows and members. You will be the owner."
        />
      </Form>
    </Section>
  )
}
