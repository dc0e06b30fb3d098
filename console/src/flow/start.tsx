// A new flow: one of the examples, with its templates, or an empty one.
import { useRef } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { handOver, useAct, useDraft } from '../data'
import { go } from '../router'
import { Field, Form, Refused, Screen, Section, Press } from '../ui'
import { parse } from '../exact'
import { EXAMPLES, type Example } from './examples'
import { inputOf } from './input'

const UNUSABLE = /"tpl_[^"]*"/g

/** Makes the example's templates, unless they are `made`, and with them its flow as a draft. */
async function make(example: Example, made: Map<unknown, string>) {
  const templates = example.templates ?? {}
  for (const [name, template] of Object.entries(templates))
    if (!made.has(template))
      made.set(
        template,
        (
          await got(
            api.POST('/templates', {
              body: { ...template, name: template.name ?? `${example.name}: ${name}` } as Schemas['WritableTemplate'],
            }),
          )
        ).id,
      )
  const definition = parse(
    JSON.stringify(example.definition).replace(UNUSABLE, quoted =>
      JSON.stringify(made.get(templates[quoted.slice(1, -1)]) ?? quoted.slice(1, -1)),
    ),
  ) as Example['definition']
  const { name } = example
  const kind = definition.graph ? 'automations' : 'workflows'
  const { id } = definition.graph
    ? await got(api.POST('/automations', { body: { name, ...definition } }))
    : await got(api.POST('/workflows', { body: { name, ...definition } }))
  handOver(`simulate.${id}`, inputOf(example.input), true)
  go(`/flows/${kind}/${id}/edit`)
}

export function NewFlow() {
  const [{ name, shape }, change, forget] = useDraft('flow.new', { name: '', shape: 'workflows' })
  const making = useAct()
  const made = useRef(new Map<unknown, string>())
  const empty = async () => {
    const trigger = {
      source: 'inbound_webhook',
      contactLookup: 'email',
      contactPath: 'data.email',
      createContact: true,
    } as const
    const graph = { nodes: [{ id: 'trigger', type: 'trigger' as const, position: { x: 0, y: 0 } }], edges: [] }
    const { id } =
      shape === 'automations'
        ? await got(api.POST('/automations', { body: { name, trigger, graph } }))
        : await got(api.POST('/workflows', { body: { name, trigger, steps: [] } }))
    forget()
    go(`/flows/${shape}/${id}/edit`)
  }
  return (
    <Screen title="New flow" lead="Start from an example or from scratch. Both are drafts until you activate them.">
      <Section title="Examples">
        <Refused problem={making.problem} />
        <ul class="plain examples">
          {EXAMPLES.map(each => (
            <li key={each.name}>
              <Press act={making} work={() => make(each, made.current)}>
                <b>{each.name}</b>
                <span>{each.about}</span>
                <span class="soft">{each.definition.graph ? 'a graph' : 'steps'}</span>
              </Press>
            </li>
          ))}
        </ul>
      </Section>
      <Section title="Empty">
        <Form label="Create flow" submit={empty}>
          <div class="columns">
            <Field label="Name" required value={name} set={name => change({ name })} pointer="/name" />
            <Field
              label="Type"
              value={shape}
              set={shape => change({ shape })}
              hint="Steps are arranged for you; in a graph you place and connect the boxes."
              options={[
                ['workflows', 'steps, one after another'],
                ['automations', 'a graph of boxes'],
              ]}
            />
          </div>
        </Form>
      </Section>
    </Screen>
  )
}
