import pretty from 'pino-pretty';
import { escapeControls } from '../util/terminal-text.ts';

/** Keys that are shown differently, or only matter to programs. */
const HIDDEN = new Set(['level', 'time', 'msg', 'v', 'stack']);

/**
 * Turns lines of the JSON log into readable lines: `[12:34:56.789] INFO: Mapped service to endpoint
 * service="default/web:http" endpoint="10.1.2.3:80"`.
 */
export function textFormatter(colour: boolean): (line: string) => string {
  return pretty.prettyFactory({
    colorize: colour,
    translateTime: 'SYS:HH:MM:ss.l',
    hideObject: true,
    // These would otherwise appear twice.
    ignore: 'name,pid,hostname,caller,type,stack',
    messageFormat: (log, messageKey) => textOf(log, messageKey),
  });
}

function textOf(log: Readonly<Record<string, unknown>>, messageKey: string): string {
  const message = escapeControls(typeof log[messageKey] === 'string' ? log[messageKey] : '');
  const keys = Object.entries(log)
    .filter(([key]) => !HIDDEN.has(key))
    .map(([key, value]) => ` ${escapeControls(key)}=${escapeControls(JSON.stringify(value))}`);
  const stack = typeof log['stack'] === 'string' ? log['stack'].split('\n').slice(1) : [];
  return message + keys.join('') + stack.map((frame) => `\n${escapeControls(frame)}`).join('');
}
