import { networkInterfaces } from 'node:os';
import { printable, type Command, type Exec } from './exec.ts';

/**
 * Prints programs instead of running them, as lines for a shell, and has them succeed. What portals have
 * to read of the host to know what to do is answered as it is without them: the addresses of the host
 * as Node tells them, and no rule of ours.
 */
export function dryExec(write: (text: string) => Promise<void>): Exec {
  const host = new DryHost();
  return async (command) => {
    await write(shellText(command));
    return { stdout: host.answer(command), stderr: '' };
  };
}

/** The command with its standard input, as a shell would take it. */
export function shellText(command: Command): string {
  const { stdin } = command;
  if (stdin === undefined) return `${printable(command)}\n`;
  const body = stdin.endsWith('\n') || stdin === '' ? stdin : `${stdin}\n`;
  return `${printable(command)} <<'EOF'\n${body}EOF\n`;
}

/** What programs that read would say. */
class DryHost {
  /** Interfaces that would have been made. */
  readonly #made: string[] = [];

  answer({ file, args, stdin = '' }: Command): string {
    if (file !== 'ip') return '';
    for (const [, name = ''] of stdin.matchAll(/^link add name (\S+) /gm)) this.#made.push(name);
    return args.includes('address') ? JSON.stringify(this.#links()) : '';
  }

  #links(): object[] {
    const there = Object.entries(networkInterfaces()).map(([ifname, list = []]) => {
      const loopback = list.some(({ internal }) => internal);
      return {
        ifname,
        flags: loopback ? ['UP', 'LOOPBACK'] : ['UP'],
        addr_info: list.map(({ address }) => ({ local: address })),
      };
    });
    const made = this.#made.map((ifname) => ({ ifname, flags: ['UP'], addr_info: [] }));
    return [...there, ...made];
  }
}
