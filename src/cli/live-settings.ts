import type { SettingChange } from '../config/events.ts';
import type { BoundCommand } from './command.ts';
import type { EffectiveSetting } from './settings.ts';

/** What a command line comes to, as far as it is compared. */
export type Settings = Pick<BoundCommand, 'command' | 'settings' | 'globals' | 'sink'>;

/** Puts one setting into force while the program runs, by flag. */
export type Appliers = Readonly<Record<string, (next: Settings) => void>>;

/** What became of a new configuration. */
export interface Adopted {
  readonly changed: readonly SettingChange[];
  readonly refused: readonly SettingChange[];
}

/** The settings that are in force. Those with an applier can be changed, the others stay as they are. */
export class LiveSettings {
  readonly command: readonly string[];
  readonly #running: Map<string, EffectiveSetting>;
  readonly #appliers: Appliers;

  constructor({ command, settings }: Pick<Settings, 'command' | 'settings'>, appliers: Appliers) {
    this.command = command;
    this.#running = new Map(settings.map((setting) => [setting.flag, setting]));
    this.#appliers = appliers;
  }

  /** In the order of the flags. */
  get settings(): readonly EffectiveSetting[] {
    return [...this.#running.values()];
  }

  /** Puts into force what can be, and tells what cannot. */
  adopt(next: Settings): Adopted {
    const changed: SettingChange[] = [];
    const refused: SettingChange[] = [];
    const [from, to] = [this.command.join(' '), next.command.join(' ')];
    if (from !== to) refused.push({ flag: '', field: 'command', from, to });
    for (const setting of next.settings) {
      const running = this.#running.get(setting.flag);
      if (running === undefined) continue;
      const apply = this.#appliers[setting.flag];
      if (running.text === setting.text) {
        // The same value may come from elsewhere now.
        this.#running.set(setting.flag, setting);
        continue;
      }
      const change = changeOf(running, setting);
      if (apply === undefined) {
        refused.push(change);
        continue;
      }
      apply(next);
      this.#running.set(setting.flag, setting);
      changed.push(change);
    }
    return { changed, refused };
  }
}

function changeOf(running: EffectiveSetting, next: EffectiveSetting): SettingChange {
  const { flag, origin } = next;
  const field = origin.kind === 'file' ? origin.field : next.field;
  return { flag, field, from: running.text ?? '', to: next.text ?? '' };
}
