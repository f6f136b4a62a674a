import { ExecError, type Command, type Exec, type ExecFailure } from '../../src/portal/exec.ts';

/** What a program does when it is run. */
export type Reaction =
  | { readonly stdout?: string; readonly stderr?: string }
  | {
      readonly fails: ExecFailure;
      readonly stdout?: string;
      readonly stderr?: string;
      readonly exitCode?: number;
    };

/** An `Exec` that remembers what was run and reacts as scripted. */
export class FakeExec {
  /** Every program that was run. */
  readonly commands: Command[] = [];
  readonly #react: (command: Command) => Reaction | Promise<Reaction>;
  readonly exec: Exec = async (command) => {
    this.commands.push(command);
    const reaction = await this.react(command);
    if ('fails' in reaction) throw new ExecError(reaction.fails, command, reaction);
    return { stdout: reaction.stdout ?? '', stderr: reaction.stderr ?? '' };
  };

  /** By default every program ends well and prints nothing. */
  constructor(react: (command: Command) => Reaction | Promise<Reaction> = () => ({})) {
    this.#react = react;
  }

  protected react(command: Command): Reaction | Promise<Reaction> {
    return this.#react(command);
  }

  /** What was run, as text: `nft -f -`. */
  get lines(): string[] {
    return this.commands.map(({ file, args }) => [file, ...args].join(' '));
  }
}

/** A program that ends with 1 and this message. */
export function exits(stderr: string, exitCode = 1): Reaction {
  return { fails: 'exit', stderr, exitCode };
}
