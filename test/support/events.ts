import type { Test } from 'tap';
import type { TypedChannel } from '../../src/util/channel.ts';

/** Calls back for each event of a channel until the test ends. */
export function listening<Event extends object>(
  t: Test,
  channel: TypedChannel<Event>,
  onEvent: (event: Event) => void,
): void {
  channel.subscribe(onEvent);
  t.teardown(() => channel.unsubscribe(onEvent));
}
