/** Drives a headless Chromium over a pipe, with what its DevTools protocol offers. */
import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { eventually } from '../support/until.ts';

/** Programs that will do, the smallest first. */
const PROGRAMS = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];

/** The path of a Chromium on this machine; undefined when there is none. */
export function findChromium(): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  return PROGRAMS.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
}

/** An answer to the request with its id, or an event. */
interface Message extends Readonly<Record<'params' | 'result', Record<string, unknown>>> {
  readonly id?: number;
  readonly method: string;
  readonly error?: { readonly message: string };
}

/** A browser, and one page in it. */
export class Chromium {
  /** What the page has complained of: exceptions, console errors, violations of its policy. */
  readonly complaints: string[] = [];
  /** Addresses that it has asked for. */
  readonly requests: string[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), 'kpng-chromium-'));
  readonly #child: ChildProcess;
  /** The messages of the browser, by the ids of requests or the names of events; an error when it has ended. */
  readonly #messages = new EventEmitter<Record<string, [Message]>>();
  #ids = 0;
  #session: string | undefined;

  private constructor(program: string) {
    const options = [
      '--remote-debugging-pipe',
      '--headless',
      // It opens only pages of ours, and as root there is no sandbox.
      '--no-sandbox',
      '--disable-gpu',
      '--hide-scrollbars',
      '--force-color-profile=srgb',
      '--no-first-run',
      `--user-data-dir=${this.#folder}`,
    ];
    const stdio: StdioOptions = ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'];
    this.#child = spawn(program, options, { stdio });
    const messages = this.#messages.on('error', () => undefined).setMaxListeners(0);
    this.#child.once('exit', () => messages.emit('error', new Error('the browser has ended')));
    let rest = '';
    (this.#child.stdio[4] as Readable).setEncoding('utf8').on('data', (text: string) => {
      const parts = (rest + text).split('\0');
      rest = parts.pop() ?? '';
      for (const message of parts.map((part) => JSON.parse(part) as Message)) {
        messages.emit(String(message.id ?? message.method), message);
      }
    });
    messages.on('Network.requestWillBeSent', ({ params }) =>
      this.requests.push((params['request'] as { url: string }).url),
    );
    messages.on('Runtime.exceptionThrown', ({ params }) =>
      this.complaints.push(JSON.stringify(params['exceptionDetails'])),
    );
    messages.on('Log.entryAdded', ({ params }) => {
      const { level, text } = params['entry'] as { level: string; text: string };
      if (level === 'error' || level === 'warning') this.complaints.push(text);
    });
  }

  static async start(program: string, width = 1400, height = 900): Promise<Chromium> {
    const browser = new Chromium(program);
    const { targetId } = await browser.send('Target.createTarget', { url: 'about:blank' });
    const attached = await browser.send('Target.attachToTarget', { targetId, flatten: true });
    browser.#session = String(attached['sessionId']);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network'])
      await browser.send(`${domain}.enable`);
    await browser.resize(width, height);
    return browser;
  }

  async resize(width: number, height: number, scale = 1): Promise<void> {
    const metrics = { width, height, deviceScaleFactor: scale, mobile: false };
    await this.send('Emulation.setDeviceMetricsOverride', metrics);
  }

  async prefer(scheme: 'light' | 'dark'): Promise<void> {
    const features = [{ name: 'prefers-color-scheme', value: scheme }];
    await this.send('Emulation.setEmulatedMedia', { features });
  }

  async open(url: string): Promise<void> {
    const loaded = once(this.#messages, 'Page.loadEventFired');
    await Promise.all([this.send('Page.navigate', { url }), loaded]);
  }

  /** The value of an expression in the page; promises are awaited. */
  async evaluate<T>(expression: string): Promise<T> {
    const how = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = (await this.send('Runtime.evaluate', how)) as {
      result: { value: T };
      exceptionDetails?: { text: string; exception?: { description?: string } };
    };
    if (exceptionDetails === undefined) return result.value;
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  }

  /** Looks again and again until an expression is true. */
  async until(expression: string): Promise<void> {
    if (await eventually(() => this.evaluate<boolean>(`Boolean(${expression})`))) return;
    const text = await this.evaluate<string>('document.body.innerText');
    throw new Error(`still not so: ${expression}; the page: ${text.slice(0, 600)}`);
  }

  /** Presses a key: a letter, `Enter` or `Escape`. */
  async press(key: string): Promise<void> {
    const codes: Record<string, number> = { Enter: 13, Escape: 27 };
    const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined;
    const event = { key, windowsVirtualKeyCode: codes[key], text };
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', ...event });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
  }

  async type(text: string): Promise<void> {
    for (const letter of text) await this.press(letter);
  }

  /** What is in the window, as PNG. */
  async screenshot(): Promise<Buffer> {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    return Buffer.from(String(data), 'base64');
  }

  async close(): Promise<void> {
    const ended = once(this.#child, 'exit');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 5000);
    this.#session = undefined;
    // With its other processes. It may be gone before it answers.
    void this.send('Browser.close').catch(() => undefined);
    await ended;
    clearTimeout(timer);
    for (const pipe of [3, 4]) this.#child.stdio[pipe]?.destroy();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  async send(method: string, params: object = {}): Promise<Record<string, unknown>> {
    const id = (this.#ids += 1);
    const answered = once(this.#messages, String(id));
    const request = { id, method, params, sessionId: this.#session };
    (this.#child.stdio[3] as Writable).write(`${JSON.stringify(request)}\0`);
    const [{ result, error }] = (await answered) as [Message];
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result;
  }
}
