// The screens that the canvas is loaded for.
export { FlowEditor, propose } from './editor'
export { Versions } from './versions'
