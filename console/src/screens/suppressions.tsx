// Addresses that nothing is sent to.
import { api, byId, got, type Schemas } from '../api'
import { useAct, useDraft, useListed } from '../data'
import { Days, days } from '../days'
import { useCan } from '../me'
import { useLocation } from '../router'
import { CHANNELS } from '../words'
import { Choice, Confirm, Field, Filters, Form, Link, Search, Section, Table, When } from '../ui'

const REASONS = [
  'unsubscribed',
  'bounced',
  'complained',
  'stopped',
  'manual',
  'erased',
] as const satisfies readonly Schemas['Suppression']['reason'][]

export function Suppressions() {
  const { query } = useLocation()
  const of = (name: string) => query.get(name) || undefined
  const filters = {
    channel: of('channel') as keyof typeof CHANNELS | undefined,
    reason: of('reason') as Schemas['Suppression']['reason'] | undefined,
    address: of('address'),
    ...days(query),
  }
  const list = useListed(
    cursor => got(api.GET('/suppressions', { params: { query: { ...filters, cursor, limit: 50 } } })),
    [query.toString()],
  )
  const [draft, set, forget] = useDraft('suppression', { channel: 'email' as keyof typeof CHANNELS, address: '' })
  const act = useAct()
  const may = useCan()('suppressions:write')
  return (
    <>
      <Filters>
        <Search label="Search" name="address" value={filters.address ?? ''} placeholder="full address" />
        <Choice label="Channel" name="channel" value={filters.channel ?? ''} options={Object.entries(CHANNELS)} />
        <Choice label="Reason" name="reason" value={filters.reason ?? ''} options={REASONS} />
        <Days />
      </Filters>
      <Table
        caption="Suppressed addresses"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No addresses match. <Link to="/settings/suppressions">Show all</Link>
            </p>
          ) : (
            <p>No suppressed addresses. Bounces, complaints and opt-outs appear here.</p>
          )
        }
        columns={[
          { name: 'Address', show: each => each.address ?? <span class="soft">only its hash is kept</span> },
          { name: 'Channel', show: each => each.channel },
          { name: 'Reason', show: each => each.reason.replaceAll('_', ' ') },
          { name: 'Since', show: each => <When at={each.createdAt} /> },
          {
            name: 'Actions',
            show: each =>
              may && (
                <Confirm
                  label="Lift"
                  title="Lift this suppression?"
                  act={async () => {
                    await got(api.DELETE('/suppressions/{id}', byId(each.id)))
                    await list.reload()
                  }}
                >
                  <p>Messages go to this address again. Do this only if you know that the person wants it.</p>
                </Confirm>
              ),
          },
        ]}
      />
      {may && (
        <Section title="Suppress an address">
          <Form
            act={act}
            label="Suppress address"
            submit={async () => {
              await got(api.POST('/suppressions', { body: draft }))
              forget({ ...draft, address: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field
                label="Address"
                required
                value={draft.address}
                set={address => set({ address })}
                pointer="/address"
              />
              <Field
                label="Channel"
                value={draft.channel}
                set={channel => set({ channel: channel as 'email' })}
                options={Object.entries(CHANNELS)}
                pointer="/channel"
              />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}
