/** A network namespace of the test's own, with an interface for service addresses. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Interface that service addresses are put on. Nothing is attached to it. */
export const PORTAL_LINK = 'kpng0';

export class Namespace {
  readonly name: string;

  private constructor(name: string) {
    this.name = name;
  }

  static async create(name: string): Promise<Namespace> {
    await run('ip', ['netns', 'add', name]);
    const made = new Namespace(name);
    await made.ip('link', 'set', 'lo', 'up');
    await made.ip('link', 'add', PORTAL_LINK, 'type', 'bridge');
    await made.ip('link', 'set', PORTAL_LINK, 'up');
    return made;
  }

  /** What runs a program in it. */
  get inside(): readonly string[] {
    return ['ip', 'netns', 'exec', this.name];
  }

  async ip(...args: readonly string[]): Promise<string> {
    return (await run('ip', ['-n', this.name, ...args])).stdout;
  }

  async addAddress(address: string): Promise<void> {
    const [bits, more] = address.includes(':') ? [128, ['nodad']] : [32, []];
    await this.ip('address', 'add', `${address}/${bits}`, 'dev', PORTAL_LINK, ...more);
  }

  async deleteAddress(address: string): Promise<void> {
    const bits = address.includes(':') ? 128 : 32;
    await this.ip('address', 'delete', `${address}/${bits}`, 'dev', PORTAL_LINK);
  }

  /** Ends the programs in it, which are all ours, and removes it. */
  async close(): Promise<void> {
    const { stdout } = await run('ip', ['netns', 'pids', this.name]);
    for (const pid of stdout.split('\n').filter((line) => line !== '')) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // It has ended by itself meanwhile.
      }
    }
    await run('ip', ['netns', 'delete', this.name]);
  }
}
