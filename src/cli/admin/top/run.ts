import { setTimeout as delay } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { messageOf } from '../../../errors.ts';
import type { Streams } from '../../command.ts';
import { cut, drawTop, roomFor } from './screen.ts';
import { type CallProxy, fetchTop, initialState, needsData, onKey, splitKeys } from './state.ts';

const ESC = '\u001b[';
/** The alternate screen, without a cursor. */
const ENTER = `${ESC}?1049h${ESC}?25l`;
const LEAVE = `${ESC}?25h${ESC}?1049l`;

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGHUP'] as const;

/** Maximum number of lines of plain text. */
const PLAIN_ROWS = 105;
const PLAIN_COLUMNS = 120;

/** Shows a live table until the user quits; without a terminal, prints plain text once. */
export async function runTop(
  flags: Readonly<Record<string, unknown>>,
  callProxy: CallProxy,
  { stdin, stdout }: Streams,
): Promise<number> {
  let state = initialState(flags);
  let data = await fetchTop(callProxy, state);
  if (flags['once'] === true || !stdout.isTTY || !stdin.isTTY) {
    const shown = Math.min(data.services.rows.length, PLAIN_ROWS - 5);
    const columns = stdout.isTTY ? stdout.columns : PLAIN_COLUMNS;
    const lines = drawTop(data, state, { columns, rows: shown + 5 }).slice(0, -1);
    const plain = lines.map((line) => stripVTControlCharacters(line).trimEnd());
    stdout.write(`${plain.join('\n')}\n`);
    return 0;
  }
  let quitting = false;
  /** Aborted to refresh at once, or to quit. */
  let wake = new AbortController();
  let failure: string | undefined;

  const quit = (): void => {
    quitting = true;
    wake.abort();
  };
  const draw = (): void => {
    if (quitting) return;
    const { columns } = stdout;
    const lines = drawTop(data, state, stdout, failure);
    const text = lines.map((line) => `${cut(line, columns)}${ESC}K`).join('\r\n');
    stdout.write(`${ESC}H${text}${ESC}J`);
  };
  const onInput = (input: Buffer): void => {
    for (const key of splitKeys(String(input))) {
      const names = data.services.rows.map(({ name }) => name);
      const next = onKey(state, key, { names, height: roomFor(stdout) });
      if (next === undefined) return quit();
      if (needsData(state, next)) wake.abort();
      state = next;
    }
    draw();
  };

  stdout.write(ENTER);
  stdin.setRawMode(true);
  stdin.on('data', onInput).resume();
  stdout.on('resize', draw);
  for (const signal of SIGNALS) process.once(signal, quit);
  try {
    draw();
    for (;;) {
      const { signal } = wake;
      await delay(Number(flags['interval']), undefined, { signal }).catch(() => undefined);
      if (quitting) return 0;
      if (signal.aborted) wake = new AbortController();
      else if (state.paused) continue;
      try {
        data = await fetchTop(callProxy, state);
        failure = undefined;
      } catch (error) {
        failure = messageOf(error);
      }
      draw();
    }
  } finally {
    // Restores the terminal.
    for (const signal of SIGNALS) process.off(signal, quit);
    stdout.off('resize', draw);
    stdin.off('data', onInput).pause();
    stdin.setRawMode(false);
    stdout.write(LEAVE);
  }
}
