import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../errors.ts';
import type { Streams } from '../../command.ts';
import {
  fetchTop,
  type CallProxy,
  type TopData,
  initialState,
  onKey,
  splitKeys,
  type TopState,
} from './state.ts';
import { drawTop, roomFor, type Size } from './draw.ts';
import { ansiLine, plainLine } from './columns.ts';

const ESC = '\u001b[';
/** The alternate screen, without a cursor. */
const ENTER = `${ESC}?1049h${ESC}?25l`;
const LEAVE = `${ESC}?25h${ESC}?1049l`;

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGHUP'] as const;

/** Maximum number of lines of plain text. */
const PLAIN_ROWS = 105;
const PLAIN_COLUMNS = 120;

export interface TopOptions {
  readonly flags: Readonly<Record<string, unknown>>;
  readonly callProxy: CallProxy;
  readonly terminal: Streams;
}

/** Shows a live table until the user quits; without a terminal, prints plain text once. */
export async function runTop({ flags, callProxy, terminal }: TopOptions): Promise<number> {
  const { stdin, stdout } = terminal;
  const state = initialState(flags);
  const data = await fetchTop(callProxy, state);
  if (flags['once'] === true || !stdout.isTTY || !stdin.isTTY) {
    const shown = Math.min(data.services.rows.length, PLAIN_ROWS - 5);
    const columns = stdout.isTTY ? stdout.columns : PLAIN_COLUMNS;
    const lines = drawTop(data, state, { columns, rows: shown + 5 }).slice(0, -1);
    stdout.write(`${lines.map(plainLine).join('\n')}\n`);
    return 0;
  }
  await new LiveTop({ flags, callProxy, terminal }, state, data).run();
  return 0;
}

/** A table on a terminal. */
class LiveTop {
  readonly #options: TopOptions;
  readonly #quit = new AbortController();
  #state: TopState;
  #data: TopData;
  #error: string | undefined;
  /** Aborted to refresh at once. */
  #refreshNow = new AbortController();

  constructor(options: TopOptions, state: TopState, data: TopData) {
    this.#options = options;
    this.#state = state;
    this.#data = data;
  }

  /** Restores the terminal. */
  async run(): Promise<void> {
    const { stdin, stdout } = this.#options.terminal;
    const onData = (input: Buffer): void => this.#onInput(String(input));
    const onResize = (): void => this.#draw();
    const onSignal = (): void => this.#quit.abort();
    stdout.write(ENTER);
    stdin.setRawMode(true);
    stdin.on('data', onData).resume();
    stdout.on('resize', onResize);
    for (const signal of SIGNALS) process.once(signal, onSignal);
    try {
      this.#draw();
      await this.#loop();
    } finally {
      for (const signal of SIGNALS) process.off(signal, onSignal);
      stdout.off('resize', onResize);
      stdin.off('data', onData).pause();
      stdin.setRawMode(false);
      stdout.write(LEAVE);
    }
  }

  async #loop(): Promise<void> {
    const { flags, callProxy } = this.#options;
    const { signal } = this.#quit;
    while (!signal.aborted) {
      const wait = AbortSignal.any([signal, this.#refreshNow.signal]);
      await delay(Number(flags['interval']), undefined, { signal: wait }).catch(() => undefined);
      if (signal.aborted) return;
      const isRefresh = this.#refreshNow.signal.aborted;
      if (isRefresh) this.#refreshNow = new AbortController();
      if (this.#state.paused && !isRefresh) continue;
      try {
        this.#data = await fetchTop(callProxy, this.#state);
        this.#error = undefined;
      } catch (error) {
        this.#error = messageOf(error);
      }
      this.#draw();
    }
  }

  #onInput(input: string): void {
    for (const key of splitKeys(input)) {
      const names = this.#data.services.rows.map(({ name }) => name);
      const outcome = onKey(this.#state, key, { names, height: roomFor(this.#size) });
      if (outcome.kind === 'quit') {
        this.#quit.abort();
        return;
      }
      this.#state = outcome.state;
      if (outcome.refetch) this.#refreshNow.abort();
    }
    this.#draw();
  }

  get #size(): Size {
    const { columns, rows } = this.#options.terminal.stdout;
    return { columns, rows };
  }

  #draw(): void {
    if (this.#quit.signal.aborted) return;
    const size = this.#size;
    const lines = drawTop(this.#data, this.#state, size, this.#error);
    const text = lines.map((line) => `${ansiLine(line, size.columns)}${ESC}K`).join('\r\n');
    this.#options.terminal.stdout.write(`${ESC}H${text}${ESC}J`);
  }
}
