// The canvas: cards and links by @xyflow/react, on Preact. What it shows is given; what is done to it is handed on.
import {
  Background,
  Controls,
  Handle,
  MarkerType,
  Position,
  ReactFlow,
  applyNodeChanges,
  useReactFlow,
  useStore,
  useUpdateNodeInternals,
  ReactFlowProvider,
  type Connection,
  type Edge,
  type Node,
  type NodeChange,
  type NodeProps,
} from '@xyflow/react'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Card, Exit, Link, Spot } from './model'

export interface Shown {
  title: string
  says: string
  errors: number
  warnings: number
  count: string
  state: '' | 'passed' | 'here' | 'failed'
}
type CardNode = Node<{ card: Card; shown: Shown }>

const TONES: Record<string, string> = {
  trigger: 'start',
  send_message: 'message',
  wait: 'time',
  wait_for: 'time',
  branch: 'choice',
  split: 'choice',
  throttle: 'choice',
  http_request: 'call',
  start_workflow: 'call',
  exit: 'start',
}

function Box({ data: { card, shown }, selected }: NodeProps<CardNode>) {
  return (
    <div class={`box ${TONES[card.kind] ?? 'other'} ${shown.state} ${selected ? 'selected' : ''}`}>
      {card.kind !== 'trigger' && <Handle type="target" position={Position.Top} />}
      <div class="kind">
        {shown.title}
        {shown.errors > 0 && <span class="mark bad"> {shown.errors} ✕</span>}
        {shown.warnings > 0 && <span class="mark odd"> {shown.warnings} !</span>}
      </div>
      {card.kind !== 'trigger' && <div class="name">{card.id}</div>}
      {shown.says && <div class="says">{shown.says}</div>}
      {shown.count && <div class="count">{shown.count}</div>}
      <div class="ports">
        {card.ports.map(port => (
          <span key={port} title={port}>
            {card.ports.length > 1 && <span>{port}</span>}
            <Handle type="source" id={safe(port)} position={Position.Bottom} />
          </span>
        ))}
      </div>
    </div>
  )
}

const KINDS = { card: Box }
const CARD = { width: 224, height: 80 }
const MANY = 150 // boxes; of more, only those in sight are drawn
const LEAST = 0.55 // a zoom at which the cards are legible
const ARROW = {
  type: MarkerType.ArrowClosed,
  width: 16,
  height: 16,
  markerUnits: 'userSpaceOnUse',
  color: 'var(--soft)',
}

/** Where the ports of a box will be, as long as it was not drawn yet: a box whose ports are unknown would be drawn, and each of many costs. */
const guessed = ({ ports }: Card): NonNullable<CardNode['handles']> => [
  { type: 'target', position: Position.Top, x: CARD.width / 2, y: 0 },
  ...ports.map((port, index) => ({
    id: safe(port),
    type: 'source' as const,
    position: Position.Bottom,
    x: (CARD.width * (index + 0.5)) / ports.length,
    y: CARD.height,
  })),
]
/** With what was measured in the place of what was guessed. */
const known = ({ handles: _, ...node }: CardNode, measured: CardNode['measured']): CardNode => ({
  ...node,
  measured: measured!,
})

interface CanvasProps {
  cards: Card[]
  links: Link[]
  positions: Record<string, Spot>
  shown: (card: Card) => Shown
  walked: ReadonlySet<string>
  selected: readonly string[]
  look: number
  movable: boolean
  select: (ids: string[]) => void
  move: (positions: Record<string, Spot>) => void
  connect: (from: Exit, target: string | null) => void
}

// The library puts names into selectors, and a name may be anything.
const safe = encodeURIComponent,
  real = decodeURIComponent
const exitOf = ({ source, sourceHandle }: Connection | Edge): Exit => ({
  id: real(source),
  port: real(sourceHandle ?? 'next'),
})

/** What the canvas shows of a simulation at a moment. */
export interface Played {
  states: ReadonlyMap<string, 'passed' | 'here' | 'failed'>
  walked: ReadonlySet<string>
}
export const NOTHING: Played = { states: new Map(), walked: new Set() }

export const linkKey = (link: Link) => `${link.source}\n${link.port}`

function Inner({
  cards,
  links,
  positions,
  shown,
  walked,
  selected,
  look,
  movable,
  select,
  move,
  connect,
}: CanvasProps) {
  const flow = useReactFlow()
  const refresh = useUpdateNodeInternals()
  const given = useMemo(
    () =>
      cards.map((card, index): CardNode => {
        const seen = shown(card)
        return {
          id: safe(card.id),
          type: 'card',
          position: positions[card.id] ?? { x: 0, y: index * 110 },
          initialWidth: CARD.width,
          initialHeight: CARD.height,
          data: { card, shown: seen },
          ...(cards.length > MANY ? { handles: guessed(card) } : {}),
          draggable: movable,
          selected: selected.includes(card.id),
          connectable: movable,
          ariaLabel: [seen.title, card.kind === 'trigger' ? '' : card.id, seen.says, seen.errors ? 'has errors' : '']
            .filter(Boolean)
            .join(', '),
        }
      }),
    [cards, positions, shown, movable, selected],
  )
  const [nodes, setNodes] = useState<CardNode[]>(given)
  const current = useRef(nodes)
  current.current = nodes
  // What was measured is kept, so that nothing flickers while somebody types.
  useEffect(
    () =>
      setNodes(old => {
        const before = new Map(old.map(node => [node.id, node]))
        return given.map(node => {
          const { measured } = before.get(node.id) ?? {}
          return measured ? known(node, measured) : node
        })
      }),
    [given],
  )
  // All at once: each time, the library looks through all that it shows.
  const ports = useMemo(() => cards.map(card => [card.id, ...card.ports].join('\n')).join('\n\n'), [cards])
  useEffect(() => refresh(cards.map(card => safe(card.id))), [ports])
  // The library forgets where a box's ports are when the box is given anew just as it is measured, and its lines with them.
  useEffect(() => {
    const lost = nodes.filter(node => node.measured && !flow.getInternalNode(node.id)?.internals.handleBounds)
    if (lost.length) refresh(lost.map(node => node.id))
  }, [nodes])
  const edges = useMemo(
    () =>
      links.map((link, index): Edge => ({
        id: `${index} ${safe(link.source)} ${safe(link.port)}`,
        source: safe(link.source),
        target: safe(link.target),
        sourceHandle: safe(link.port),
        focusable: movable,
        deletable: false,
        markerEnd: ARROW,
        className: walked.has(linkKey(link)) ? 'walked' : '',
        ariaLabel: `From ${link.source} by ${link.port} to ${link.target}`,
        data: { ...link },
      })),
    [links, walked, movable],
  )
  const change = (changes: NodeChange<CardNode>[]) => {
    const next = applyNodeChanges(changes, current.current).map(node =>
      node.measured && node.handles ? known(node, node.measured) : node,
    )
    current.current = next
    setNodes(next)
    if (changes.some(one => one.type === 'select'))
      select(next.filter(node => node.selected).map(node => node.data.card.id))
    const settled = changes.filter(one => one.type === 'position' && !one.dragging && one.position)
    if (movable && settled.length)
      move(
        Object.fromEntries(
          settled.flatMap(one => (one.type === 'position' && one.position ? [[real(one.id), one.position]] : [])),
        ),
      )
  }
  const width = useStore(state => state.width),
    height = useStore(state => state.height)
  const isSized = width > 0 && height > 0
  // The whole flow, or as much of it from its beginning as can still be read.
  useEffect(() => {
    const spots = current.current.map(node => node.position)
    if (!isSized || !spots.length) return
    const [left, top] = [Math.min(...spots.map(spot => spot.x)), Math.min(...spots.map(spot => spot.y))]
    const across = Math.max(...spots.map(spot => spot.x)) + CARD.width - left,
      down = Math.max(...spots.map(spot => spot.y)) + CARD.height - top
    const zoom = Math.max(LEAST, Math.min(1, (width - 40) / across, (height - 40) / down))
    const first = (spots[0]?.x ?? left) + CARD.width / 2
    void flow.setViewport({
      zoom,
      x: width / 2 - (across * zoom > width - 40 ? first : left + across / 2) * zoom,
      y: Math.max(20, (height - down * zoom) / 2) - top * zoom,
    })
  }, [look, isSized])
  // What is selected elsewhere comes into sight.
  const spot = selected.length === 1 ? positions[selected[0] ?? ''] : undefined
  useEffect(() => {
    const { x, y, zoom } = flow.getViewport()
    if (!spot || !isSized) return
    const [left, top] = [spot.x * zoom + x, spot.y * zoom + y]
    if (left < 0 || top < 0 || left + CARD.width * zoom > width || top + CARD.height * zoom > height)
      void flow.setCenter(spot.x + CARD.width / 2, spot.y + CARD.height / 2, { zoom })
  }, [selected[0], spot?.x, spot?.y])
  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={KINDS}
      onNodesChange={change}
      minZoom={0.1}
      deleteKeyCode={null}
      edgesFocusable={movable}
      nodesConnectable={movable}
      selectNodesOnDrag={false}
      onlyRenderVisibleElements={cards.length > MANY}
      onConnect={(made: Connection) => connect(exitOf(made), real(made.target))}
      onEdgeDoubleClick={(_: unknown, edge: Edge) => {
        if (movable) connect(exitOf(edge), null)
      }}
      proOptions={{ hideAttribution: true }}
    >
      <Background />
      <Controls showInteractive={false} />
    </ReactFlow>
  )
}

export const Canvas = (props: CanvasProps) => (
  <ReactFlowProvider>
    <Inner {...props} />
  </ReactFlowProvider>
)
