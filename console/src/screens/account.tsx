// Somebody's account: their address, their password, and their workspaces.
import { useState } from 'preact/hooks'
import { api, got } from '../api'
import { useAct, useDraft, useListed } from '../data'
import { useMe } from '../me'
import { switchTo } from '../session'
import { Button, Facts, Field, Form, Refused, Section, Table, When } from '../ui'

export function Account() {
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
                <Button
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
                </Button>
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
                <Button disabled={going.busy} onClick={() => void going.run(() => switchTo(each.id))}>
                  Switch
                </Button>
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
