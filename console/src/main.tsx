// The console: signs in, then shows the screen that the path names.
import { render } from 'preact'
import { useEffect, useErrorBoundary, useRef, useState } from 'preact/hooks'
import './console.css'
import { api, got, type Schemas } from './api'
import { asRefusal, useAct, useListed, useLoaded } from './data'
import { tried } from './exact'
import { can, MeContext } from './me'
import { page } from './names'
import { go, here, useLocation } from './router'
import {
  at,
  begin,
  currentWorkspace,
  forgetDrafts,
  has,
  hasDrafts,
  isSignedIn,
  leave,
  resume,
  switchTo,
  whenSessionEnds,
  type Refusal,
} from './session'
import { explaining, Later, reaching } from './later'
import { Button, Confirm, Link, NotAllowed, Refused, Screen, ShowMore, Unread, Press } from './ui'
import { ByLink, Forgotten, Register, SignIn, SignInForm } from './screens/sign_in'
import { Flow, Flows, kindOf } from './screens/flows'
import { Home } from './screens/home'
import { Message, Messages } from './screens/messages'
import { Request } from './screens/requests'
import { Run, Runs } from './screens/runs'

// Chunks of their own, which are loaded once one of their screens is opened.
const knowing = () => import('./screens/contacts')
const editing = () => import('./flow/editor')
const comparing = () => import('./flow/versions')
const writing = () => import('./screens/templates')
const starting = () => import('./flow/start')
const importing = () => import('./flow/import')
const importingContacts = () => import('./screens/import')
const capturing = () => import('./screens/inbox')
const setting = () => import('./screens/settings')
const administering = () => import('./screens/admin')

type Params = Record<string, string>
/** A screen of a chunk of its own. */
const later =
  <Module,>(load: () => Promise<Module>, show: (of: Module, params: Params) => preact.JSX.Element) =>
  (params: Params) => <Later load={load} show={of => show(of, params)} />

/** Where, what, and the permission without which it is of no use. */
const SCREENS: readonly (readonly [string, (params: Params) => preact.JSX.Element, string?])[] = [
  ['/', () => <Home />],
  ['/runs', () => <Runs />],
  ['/runs/:id', ({ id = '' }) => <Run id={id} />],
  ['/contacts', later(knowing, of => <of.Contacts />)],
  ['/contacts/new', later(knowing, of => <of.NewContact />), 'contacts:write'],
  ['/contacts/import', later(importingContacts, of => <of.Import />), 'contacts:write'],
  ['/contacts/:id', later(knowing, (of, { id = '' }) => <of.Contact id={id} />)],
  ['/messages', () => <Messages />],
  ['/messages/:id', ({ id = '' }) => <Message id={id} />],
  ['/inbox', later(capturing, of => <of.Inbox />)],
  ['/flows', () => <Flows />],
  ['/flows/new', later(starting, of => <of.NewFlow />), 'workflows:write'],
  ['/flows/import', later(importing, of => <of.ImportFlow />), 'workflows:write'],
  ['/flows/:kind/:id', ({ kind = '', id = '' }) => <Flow kind={kind} id={id} />],
  ['/flows/:kind/:id/requests', ({ kind = '', id = '' }) => <Flow kind={kind} id={id} tab="requests" />],
  [
    '/flows/:kind/:id/edit',
    later(editing, (of, { kind = '', id = '' }) => <of.FlowEditor of={kindOf(kind)} id={id} />),
  ],
  [
    '/flows/:kind/:id/versions',
    ({ kind = '', id = '' }) => (
      <Flow kind={kind} id={id} tab="versions">
        {(of, newest) => <Later load={comparing} show={({ Versions }) => <Versions {...{ of, id, newest }} />} />}
      </Flow>
    ),
  ],
  ['/segments', later(reaching, of => <of.Segments />)],
  ['/segments/new', later(reaching, of => <of.NewSegment />), 'contacts:write'],
  ['/segments/:id', later(reaching, (of, { id = '' }) => <of.Segment id={id} />)],
  ['/segments/:id/edit', later(reaching, (of, { id = '' }) => <of.EditSegment id={id} />), 'contacts:write'],
  ['/broadcasts', later(reaching, of => <of.Broadcasts />)],
  ['/broadcasts/new', later(reaching, of => <of.NewBroadcast />), 'broadcasts:write'],
  ['/broadcasts/:id', later(reaching, (of, { id = '' }) => <of.Broadcast id={id} />)],
  ['/broadcasts/:id/edit', later(reaching, (of, { id = '' }) => <of.EditBroadcast id={id} />), 'broadcasts:write'],
  ['/events/:id', later(explaining, (of, { id = '' }) => <of.Event id={id} />)],
  ['/requests/:id', ({ id = '' }) => <Request id={id} />],
  ['/templates', later(writing, of => <of.Templates />)],
  ['/templates/new', later(writing, of => <of.NewTemplate />), 'templates:write'],
  ['/templates/:id', later(writing, (of, { id = '' }) => <of.Template id={id} />)],
  ['/settings', later(setting, of => <of.Settings part="workspace" />)],
  ['/settings/:part', later(setting, (of, { part = '' }) => <of.Settings part={part} />)],
  ['/admin', later(administering, of => <of.Admin />)],
  ['/admin/:id', later(administering, (of, { id = '' }) => <of.Admin part={id} />)],
]
const NAVIGATION = [
  ['/', 'Home', ''],
  ['/runs', 'Runs', 'runs:read'],
  ['/contacts', 'Contacts', 'contacts:read'],
  ['/segments', 'Segments', 'contacts:read'],
  ['/broadcasts', 'Broadcasts', 'broadcasts:read'],
  ['/messages', 'Messages', 'messages:read'],
  ['/inbox', 'Sandbox inbox', 'messages:read'],
  ['/flows', 'Flows', 'workflows:read'],
  ['/templates', 'Templates', 'templates:read'],
  ['/settings', 'Settings', ''],
  ['/admin', 'All workspaces', 'super-admin'],
] as const

const decoded = (part: string) => tried(() => decodeURIComponent(part), part) // a % with nothing behind it

function matched(path: string, me: Schemas['Me']): preact.JSX.Element {
  const parts = path.replace(/\/$/, '').split('/')
  for (const [pattern, show, needs] of SCREENS) {
    const wanted = pattern.replace(/\/$/, '').split('/')
    if (wanted.length !== parts.length) continue
    const params: Params = {}
    if (
      wanted.every((part, index) => {
        const given = parts[index] ?? ''
        if (!part.startsWith(':')) return part === given
        params[part.slice(1)] = decoded(given)
        return given !== ''
      })
    )
      return !needs || can(me, needs) ? show(params) : <NotAllowed />
  }
  return (
    <Screen title="Page not found">
      <p>
        There is no page at this address. <Link to="/">Go to Home</Link>.
      </p>
    </Screen>
  )
}

function Shell() {
  const me = useLoaded(() => got(api.GET('/auth/me')), [])
  const { path } = useLocation()
  const main = useRef<HTMLElement>(null)
  const again = <Again done={me.reload} />
  if (me.value === null)
    return (
      <>
        <main class="alone">
          <Unread of={me} />
        </main>
        {again}
      </>
    )
  const known = { ...me.value, reload: me.reload }
  return (
    <>
      <MeContext.Provider value={known}>
        <a
          class="skip"
          href="#main"
          onClick={event => {
            event.preventDefault()
            main.current?.focus()
          }}
        >
          Skip to content
        </a>
        <aside>
          <p class="brand">
            <Link to="/">Tidings</Link>
          </p>
          <nav aria-label="Main">
            <ul>
              {NAVIGATION.filter(
                ([to, , needs]) =>
                  (!needs || can(known, needs) || (needs === 'super-admin' && known.user?.superAdmin)) &&
                  (to !== '/inbox' || has('sandbox')),
              ).map(([to, name]) => (
                <li key={to}>
                  <Link
                    to={to}
                    aria-current={(to === '/' ? path === '/' : `${path}/`.startsWith(`${to}/`)) ? 'page' : undefined}
                  >
                    {name}
                  </Link>
                </li>
              ))}
            </ul>
          </nav>
          <Account me={known} />
        </aside>
        <main id="main" ref={main} tabIndex={-1} key={path}>
          <Safe>{matched(path, known)}</Safe>
        </main>
      </MeContext.Provider>
      {again}
    </>
  )
}

const LOST = <p>Whatever you typed or drew in this tab and did not save is lost.</p>

/** Around a screen that may fail to be shown, most likely by what was typed into it. */
function Safe({ children }: { children: preact.ComponentChildren }) {
  const [error, again] = useErrorBoundary()
  if (!error) return <>{children}</>
  return (
    <Screen title="This page cannot be shown">
      <div class="refused" role="alert">
        <p>Try again. If what you typed is the cause, start over.</p>
        <p class="soft">{asRefusal(error).message}</p>
      </div>
      <p class="buttons">
        <Button onClick={again}>Try again</Button>{' '}
        <Confirm
          label="Start over"
          title="Start over?"
          isAsked={hasDrafts}
          act={async () => {
            forgetDrafts()
            again()
          }}
        >
          {LOST}
        </Confirm>
      </p>
    </Screen>
  )
}

function Account({ me }: { me: Schemas['Me'] }) {
  const { path } = useLocation()
  const mine = useListed(cursor => got(api.GET('/workspaces', page(cursor))), [])
  const act = useAct()
  const all = mine.rows ?? []
  return (
    <div class="account">
      {all.length > 1 ? (
        <details key={path}>
          <summary class="name" title="Switch workspace">
            <span class="unseen">Workspace: </span>
            {me.workspace.name}
          </summary>
          <ul aria-label="Switch to">
            {all
              .filter(each => each.id !== me.workspace.id)
              .map(each => (
                <li key={each.id}>
                  <Press class="plain" act={act} work={() => switchTo(each.id)}>
                    {each.name}
                  </Press>
                </li>
              ))}
          </ul>
          <ShowMore of={mine} />
        </details>
      ) : (
        <p class="name">{me.workspace.name}</p>
      )}
      <p class="soft">
        {me.user?.name}, {me.role}
        {has('sandbox') ? ' · sandbox' : ''}
      </p>
      <Refused problem={act.problem} />
      <p>
        <a href={at('/docs')}>API reference</a>{' '}
        <Confirm look="plain" label="Sign out" title="Sign out?" isAsked={hasDrafts} act={leave}>
          {LOST}
        </Confirm>
      </p>
    </div>
  )
}

/** Over whatever is open when the session ends, so that nothing typed is lost. Whoever is back may have another role by then. */
function Again({ done }: { done: () => Promise<void> }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [open, setOpen] = useState(false)
  const leaving = useAct()
  useEffect(
    () =>
      whenSessionEnds(isWanted => {
        setOpen(isWanted)
        if (!isWanted) void done()
      }),
    [],
  )
  useEffect(() => {
    if (open) dialog.current?.showModal()
  }, [open])
  if (!open) return null
  return (
    <dialog
      ref={dialog}
      aria-label="Sign in again"
      onCancel={event => event.preventDefault()}
      onClose={event => event.currentTarget.showModal()}
    >
      <h2>Your session has ended</h2>
      <p>Sign in again; what you typed is still there.</p>
      <SignInForm done={() => setOpen(false)} />
      <ByLink />
      {has('sign-on') && (
        <p>
          <a
            class="button"
            target="_blank"
            href={at(`/auth/oidc/login?returnTo=/console/&workspaceId=${currentWorkspace()}`)}
          >
            Sign in with SSO in another tab
          </a>
        </p>
      )}
      <Refused problem={leaving.problem} />
      <p>
        <Press class="plain" act={leaving} work={leave}>
          Sign out instead
        </Press>
        , and lose what you typed.
      </p>
    </dialog>
  )
}

function App() {
  const [state, setState] = useState<'asking' | 'in' | 'out'>('asking')
  const [problem, setProblem] = useState<Refusal | null>(null)
  const { path } = useLocation()
  const enter = async () => {
    setProblem(null)
    const link = new URLSearchParams(location.hash.slice(1)).get('sign-in')
    if (link) history.replaceState(history.state, '', location.pathname + location.search) // the token is in no history
    try {
      const refused = link ? await begin('/sandbox/sign-ins', { token: link }).then(() => null, asRefusal) : null
      if (isSignedIn() || (await resume())) return entered() // whoever opens the link again is signed in by it
      setProblem(refused)
      setState('out')
    } catch (error) {
      setProblem(asRefusal(error))
      setState('out')
    }
  }
  useEffect(() => {
    void enter()
  }, [])
  const entered = () => {
    if (['/sign-in', '/register', '/forgotten'].includes(here())) go('/', true)
    setState('in')
  }
  if (state === 'asking')
    return (
      <main class="alone">
        <p role="status">Loading…</p>
      </main>
    )
  if (state === 'in') return <Shell />
  if (path === '/register') return <Register done={entered} />
  if (path === '/forgotten') return <Forgotten />
  return <SignIn done={entered} problem={problem} />
}

render(<App />, document.getElementById('app')!)
