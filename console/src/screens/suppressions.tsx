// Addresses that nothing is sent to.
import { api, byId, got, type Schemas } from '../api'
import { fields, useDraft } from '../data'
import { Days } from '../days'
import { useNarrowed } from '../lists'
import { useCan } from '../me'
import { CHANNELS } from '../words'
import { Choice, Confirm, Field, Filters, Form, Search, Section, Table, When } from '../ui'

const REASONS = [
  'unsubscribed',
  'bounced',
  'complained',
  'stopped',
  'manual',
  'erased',
] as const satisfies readonly Schemas['Suppression']['reason'][]

export function Suppressions() {
  const list = useNarrowed('/suppressions', asked => api.GET('/suppressions', { params: { query: asked } }), [
    'channel',
    'reason',
    'address',
  ])
  const [draft, set, forget] = useDraft('suppression', { channel: 'email' as keyof typeof CHANNELS, address: '' })
  const field = fields(draft, set)
  const may = useCan()('suppressions:write')
  return (
    <>
      <Filters>
        <Search label="Search" name="address" placeholder="full address" />
        <Choice name="channel" options={Object.entries(CHANNELS)} />
        <Choice name="reason" options={REASONS} />
        <Days />
      </Filters>
      <Table
        what="suppressed addresses"
        of={list}
        empty="Bounces, complaints and opt-outs appear here."
        columns={[
          ['Address', each => each.address ?? <span class="soft">only its hash is kept</span>],
          ['Channel', each => each.channel],
          ['Reason', each => each.reason.replaceAll('_', ' ')],
          ['Since', each => <When at={each.createdAt} />],
          [
            'Actions',
            each =>
              may && (
                <Confirm
                  label="Lift"
                  title="Lift this suppression?"
                  act={() => got(api.DELETE('/suppressions/{id}', byId(each.id))).then(list.reload)}
                >
                  <p>Messages go to this address again. Do this only if you know that the person wants it.</p>
                </Confirm>
              ),
          ],
        ]}
      />
      {may && (
        <Section title="Suppress an address">
          <Form
            label="Suppress address"
            submit={async () => {
              await got(api.POST('/suppressions', { body: draft }))
              forget({ ...draft, address: '' })
              await list.reload()
            }}
          >
            <div class="columns">
              <Field label="Address" required {...field('address')} />
              <Field label="Channel" {...field('channel')} options={Object.entries(CHANNELS)} />
            </div>
          </Form>
        </Section>
      )}
    </>
  )
}
