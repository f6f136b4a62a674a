/** The channels that log, metrics and health are made from, and what tables say about their events. */
import * as config from '../config/events.ts';
import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as proxier from '../proxier/events.ts';
import * as dataPath from '../proxysocket/events.ts';
import * as server from '../server/events.ts';
import * as sinks from '../sinks/events.ts';
import * as store from '../store/events.ts';
import { httpLimitReached } from '../util/http-connections.ts';
import { certificateOutdated } from '../util/tls-files.ts';

type Sources = typeof config & typeof file & typeof kube & typeof server & typeof store;
type Sinks = typeof portal & typeof proxier & typeof dataPath & typeof sinks;
const SOURCES: Sources = { ...config, ...file, ...kube, ...server, ...store };
const SINKS: Sinks = { ...portal, ...proxier, ...dataPath, ...sinks };
const OTHERS = { httpLimitReached, certificateOutdated };

/** By the names of their constants. */
export const CHANNELS: Sources & Sinks & typeof OTHERS = { ...SOURCES, ...SINKS, ...OTHERS };

/** Whether an event fulfils all conditions, separated by blanks: `field` or `!field`; `field=text` or `field!=text`. */
export function conditionOf(conditions: string): (event: object) => boolean {
  const parts = conditions.split(' ').filter(Boolean);
  const tests = parts.map((part) => /^(!?)([\w.]+)(?:(!?)=(.*))?$/.exec(part) ?? []);
  return (event) =>
    tests.every(([, not, path = '', differs, text]) => {
      const value = valueAt(event, path);
      const holds = text === undefined ? Boolean(value) : String(value) === text;
      return holds === (not !== '!' && differs !== '!');
    });
}

/** The value of `field`, or of `field.part`. */
export function valueAt(event: object, path: string): unknown {
  let value: unknown = event;
  for (const name of path.split('.'))
    value = (value as Record<string, unknown> | undefined)?.[name];
  return value;
}
