export { Broadcast, Broadcasts } from './broadcasts'
export { EditBroadcast, NewBroadcast } from './compose'
export { EditSegment, NewSegment, Segment, Segments } from './segments'
export { Topics } from './topics'
