// Settings: a page for each part of them.
import { Later, reaching } from '../later'
import { useCan } from '../me'
import { Disallowed, Screen, Tabs } from '../ui'
import { Account } from './account'
import { Channels } from './channels'
import { Endpoints } from './endpoints'
import { Keys, Members } from './members'
import { Plan } from './plan'
import { SignOn } from './sign_on'
import { Suppressions } from './suppressions'
import { Audit } from './trail'
import { Workspace } from './workspace'

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

const ABOUT: Record<string, string> = {
  workspace: 'Its name and sender, and how much marketing a contact gets.',
  account: 'Your own address, password and workspaces.',
  members: 'Who works here, and what each may do.',
  'sign-in': 'Whose people join by your company’s sign-in.',
  keys: 'With a key, a program of yours uses the API.',
  channels: 'Through whom messages are sent.',
  endpoints: 'Programs of yours that are told what happens here.',
  suppressions: 'Addresses to which nothing is sent.',
  topics: 'Subjects of marketing that contacts choose one by one.',
  audit: 'Who changed what, and when.',
  plan: 'What this workspace may use, and has used.',
}

export function Settings({ part }: { part: string }) {
  const may = useCan()
  const mine = PARTS.filter(([, , needs]) => !needs || may(needs))
  const [, name, needs, show] = PARTS.find(([key]) => key === part) ?? PARTS[0]!
  return (
    <Screen title={name} lead={ABOUT[part]}>
      <Tabs label="Settings" at="/settings" of={mine} now={part} />
      {!needs || may(needs) ? show() : <Disallowed />}
    </Screen>
  )
}
