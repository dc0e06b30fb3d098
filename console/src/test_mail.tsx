// A mail to a member, marked as a test.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useDraft } from './data'
import { useCan, useMe } from './me'
import { Confirm, Field, Link } from './ui'

/** `needs`: the permission to send it. The children say what will be sent. */
export function TestMail({
  send,
  needs = 'messages:write',
  children,
}: {
  send: (to: string) => Promise<{ messageId: string }>
  needs?: string
  children: ComponentChildren
}) {
  const me = useMe()
  const [{ to }, change, forget] = useDraft('test-mail', { to: me.user?.email ?? '' })
  const [sent, setSent] = useState('')
  if (!useCan()(needs)) return null
  return (
    <>
      {sent && (
        <span role="status">
          <Link to={`/messages/${sent}`}>Test email sent</Link>
        </span>
      )}
      <Confirm
        label="Send test email"
        title="Send a test email?"
        sure="Send"
        act={async () => {
          setSent('')
          setSent((await send(to)).messageId)
          forget()
        }}
      >
        {children}
        <Field
          label="To"
          type="email"
          required
          value={to}
          set={to => change({ to })}
          pointer="/to"
          hint="A member’s address."
        />
      </Confirm>
    </>
  )
}
