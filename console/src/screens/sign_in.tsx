// The ways in: a password, single sign-on, a new account, a forgotten password.
import { useState } from 'preact/hooks'
import { api, got } from '../api'
import { fields, useDraft } from '../data'
import { at, begin, has, Refusal, signIn } from '../session'
import { Field, Form, Link, Refused, Screen } from '../ui'

const EMAIL = { label: 'Email', type: 'email', autocomplete: 'username', required: true } as const

export function SignInForm({ done }: { done: () => void }) {
  const [draft, change, forget] = useDraft('sign-in', { email: '' })
  const field = fields(draft, change)
  const [password, setPassword] = useState('')
  return (
    <Form
      label="Sign in"
      submit={async () => {
        await signIn({ email: draft.email, password })
        forget()
        setPassword('')
        done()
      }}
    >
      <Field {...EMAIL} {...field('email')} />
      <Field
        label="Password"
        type="password"
        autocomplete="current-password"
        required
        value={password}
        set={setPassword}
        pointer="/password"
      />
    </Form>
  )
}

/** The demo's owner has no password. */
export const ByLink = () =>
  has('sandbox') ? (
    <p class="hint">In a sandbox, the link that it prints when it starts signs you in too: open it in this browser.</p>
  ) : null

export function SignIn({ done, problem }: { done: () => void; problem: Refusal | null }) {
  const page = location.pathname + location.search
  return (
    <main class="alone">
      <Screen title="Sign in" lead="Tidings">
        <Refused problem={problem} />
        <SignInForm done={done} />
        <ByLink />
        {has('sign-on') && (
          <p>
            <a class="button" href={at(`/auth/oidc/login?returnTo=${encodeURIComponent(page.slice(at('').length))}`)}>
              Sign in with SSO
            </a>
          </p>
        )}
        <p>
          {has('registration') && (
            <>
              <Link to="/register">Create an account</Link> ·{' '}
            </>
          )}
          <Link to="/forgotten">Forgot password?</Link>
        </p>
      </Screen>
    </main>
  )
}

export function Register({ done }: { done: () => void }) {
  const [draft, change, forget] = useDraft('register', { name: '', email: '', workspaceName: '' })
  const field = fields(draft, change)
  const [password, setPassword] = useState('')
  return (
    <main class="alone">
      <Screen title="Create an account" lead="With your own workspace">
        <Form
          label="Create account"
          submit={async () => {
            await begin('/auth/register', { ...draft, password })
            forget()
            done()
          }}
        >
          <Field label="Your name" autocomplete="name" required {...field('name')} />
          <Field
            label="Workspace"
            autocomplete="organization"
            required
            hint="The name of your company or project."
            {...field('workspaceName')}
          />
          <Field {...EMAIL} {...field('email')} />
          <Field
            label="Password"
            type="password"
            autocomplete="new-password"
            required
            hint="At least ten characters."
            value={password}
            set={setPassword}
            pointer="/password"
          />
        </Form>
        <p>
          <Link to="/sign-in">Sign in instead</Link>
        </p>
      </Screen>
    </main>
  )
}

export function Forgotten() {
  const [draft, change, forget] = useDraft('sign-in', { email: '' })
  const field = fields(draft, change)
  const [sent, setSent] = useState('')
  return (
    <main class="alone">
      <Screen title="Forgot password">
        {sent ? (
          <p role="status">If {sent} has an account, an email with a link is on its way. The link works for an hour.</p>
        ) : (
          <Form
            label="Send link"
            submit={async () => {
              await got(api.POST('/auth/password/forgot', { body: { email: draft.email } }))
              setSent(draft.email)
              forget()
            }}
          >
            <Field {...EMAIL} {...field('email')} />
          </Form>
        )}
        <p>
          <Link to="/sign-in">Back to sign-in</Link>
        </p>
      </Screen>
    </main>
  )
}
