// A mail as it reads: its words with their structure, made anew from a list of harmless elements without any attribute.
import { h, type ComponentChildren } from 'preact'

const KEPT = new Set(['a', 'b', 'blockquote', 'br', 'code', 'div', 'em', 'hr', 'i', 'li', 'ol', 'p', 'pre', 'small', 'span', 'strong', 'sub', 'sup', 'u', 'ul'])
const GONE = new Set(['script', 'style', 'head', 'title', 'template', 'iframe', 'object', 'svg', 'noscript'])
// Which the policy of the page would report, even of what is never shown; nothing of them is made anew in any case.
const REPORTED = /([\s/"'])(style|on[a-z]+)\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)/gi

function made(node: Node, key: number): ComponentChildren {
  if (node.nodeType === Node.TEXT_NODE) return node.textContent
  if (!(node instanceof Element)) return null
  const name = node.localName
  if (GONE.has(name)) return null
  if (name === 'img') return <span key={key} class="soft">[{node.getAttribute('alt') || 'picture'}]</span>
  const inner = [...node.childNodes].map(made)
  if (/^h[1-6]$/.test(name)) return <p key={key}><strong>{inner}</strong></p> // the page has a heading of its own
  if (name === 'br' || name === 'hr') return h(name, { key })
  const to = name === 'a' ? node.getAttribute('href') : null
  return h(name === 'a' ? 'u' : KEPT.has(name) ? name : 'div', { key, ...(to ? { title: to } : {}) }, inner)
}

export function Letter({ html }: { html: string }) {
  const { body } = new DOMParser().parseFromString(html.replace(REPORTED, '$1'), 'text/html')
  return <div class="letter">{[...body.childNodes].map(made)}</div>
}
