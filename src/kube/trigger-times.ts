import { object, text } from './json.ts';
import type { ObjectEvent } from './watch.ts';

/** When the change happened that made the controller write a slice anew. */
const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';

/** When what has changed slices has happened, not before `since`. Milliseconds since the epoch. */
export function triggerTimes(events: readonly ObjectEvent[], since: number): number[] {
  return events
    .filter(({ type }) => type !== 'DELETED')
    .map(({ raw }) => text(object(object(raw['metadata'])['annotations'])[TRIGGER_TIME]))
    .map((written) => Date.parse(written))
    .filter((at) => at >= since);
}
