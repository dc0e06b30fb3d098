// What a flow was each time it was activated or changed since: the differences, and how many runs are on which.
import { api, exactly, got, type Schemas } from '../api'
import { useListed, useLoaded } from '../data'
import { useCan } from '../me'
import { page, type Kind } from '../names'
import { narrow, narrowed, useLocation } from '../router'
import { Sought } from '../sought'
import { SOURCES } from '../words'
import { clock, Confirm, Field, Json, Link, Section, Shown, Table, When, plural } from '../ui'
import { DifferenceShown } from './difference'
import { readVersion, reopen } from './kept'
import type { Difference } from './model'

export { propose } from './kept' // for the page of a request

export function Versions({ of, id, newest }: { of: Kind; id: string; newest: number }) {
  const { query } = useLocation()
  const list = useListed<Schemas['VersionSummary']>(
    cursor => got(api.GET(`/${of}/{id}/versions`, { params: { path: { id }, ...page(cursor).params } })),
    [of, id, newest],
  )
  const chosen = Number(query.get('version')) || 0
  const after = Number(query.get('to')) || newest,
    before = Number(query.get('from')) || after - 1
  const options = (list.rows ?? []).map(each => [String(each.version), `version ${each.version}`] as const)
  return (
    <>
      <Sought
        of={list}
        text={each =>
          `version ${each.version} ${SOURCES[each.triggerSource] ?? each.triggerSource} ${clock(each.createdAt)}${each.runs ? ' runs' : ' none'}${each.version > 1 ? '' : ' first version'}`
        }
      >
        {found => (
          <Table
            what="versions"
            of={found}
            id={each => String(each.version)}
            empty="Activating the flow creates the first."
            columns={[
              ['Version', each => each.version],
              ['Since', each => <When at={each.createdAt} />],
              ['Trigger', each => SOURCES[each.triggerSource] ?? each.triggerSource],
              ['Runs', each => (each.runs ? plural(each.runs, 'run') : 'none')],
              [
                'Changes',
                each =>
                  each.version > 1 ? (
                    <Link to={narrowed({ version: '', from: String(each.version - 1), to: String(each.version) })}>
                      since version {each.version - 1}
                    </Link>
                  ) : (
                    'first version'
                  ),
              ],
              ['Actions', each => <Link to={narrowed({ version: String(each.version), from: '', to: '' })}>View</Link>],
            ]}
          />
        )}
      </Sought>
      {chosen > 0 && <Version of={of} id={id} version={chosen} />}
      {before > 0 && options.length > 1 && (
        <Section title={`Changes from version ${before} to ${after}`}>
          <div class="columns">
            <Field
              label="From"
              value={String(before)}
              set={from => narrow({ from, to: String(after) })}
              options={options}
            />
            <Field
              label="To"
              value={String(after)}
              set={to => narrow({ from: String(before), to })}
              options={options}
            />
          </div>
          <Compared of={of} id={id} before={before} after={after} />
        </Section>
      )}
    </>
  )
}

/** What a version said, and a way back to it. */
function Version({ of, id, version }: { of: Kind; id: string; version: number }) {
  const found = useLoaded(async () => (await readVersion(of, id, version)).value, [of, id, version])
  const may = useCan()(`${of}:write`)
  return (
    <Section
      title={`Version ${version}`}
      actions={
        may && (
          <Confirm
            label="Restore"
            title={`Restore version ${version}?`}
            sure="Open in editor"
            act={() => reopen(of, id, version)}
          >
            <p>
              It opens in the editor as an unsaved change: look at it, simulate it, then save or activate it. Other
              unsaved changes there are replaced.
            </p>
          </Confirm>
        )
      }
    >
      <Shown of={found}>
        {value => (
          <>
            <Json value={value.trigger} name="trigger" />
            <Json value={'steps' in value ? value.steps : value.graph} name={of === 'workflows' ? 'steps' : 'graph'} />
          </>
        )}
      </Shown>
    </Section>
  )
}

function Compared({ of, id, before, after }: { of: Kind; id: string; before: number; after: number }) {
  const found = useLoaded(
    async () => (await exactly<Schemas['VersionDifference']>(`/${of}/${id}/versions/${before}/diff/${after}`)).value,
    [of, id, before, after],
  )
  return (
    <Shown of={found}>
      {value => (
        <>
          <p class="soft">
            {[before, after]
              .map(one => `${plural(value.runs[one] ?? 0, 'run')} in progress on version ${one}`)
              .join(', ')}
            .
          </p>
          <DifferenceShown of={value as unknown as Difference} />
        </>
      )}
    </Shown>
  )
}
