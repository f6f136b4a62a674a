import { configFailed, configReloaded, type SettingChange } from '../config/events.ts';
import {
  CONFIG_FILE,
  CONFIG_LIMITS,
  fieldName,
  KUBE_PROXY_API_VERSION,
  KUBE_PROXY_FIELDS,
  KUBE_PROXY_KIND,
  OWN_API_VERSION,
  OWN_COMMAND,
  OWN_KIND,
  type FieldRules,
} from '../config/fields.ts';
import { KpngError } from '../errors.ts';
import type { AdjustableLog } from '../observe/log.ts';
import { LIMIT_NAMES, LIVE_LIMITS, type LimitChange } from '../proxysocket/limits.ts';
import { systemClock } from '../util/clock.ts';
import { watchFile } from '../util/file-watcher.ts';
import type { BoundCommand } from './command.ts';
import type { GlobalOptions } from './flags/global.ts';
import type { EffectiveSetting } from './flags/read.ts';
import type { Live } from './lifecycle.ts';

/** Applies the settings that can change now and returns those and the ones that cannot. */
export function adopt(
  live: Pick<Live, 'command' | 'globals' | 'settings'>,
  next: BoundCommand,
  log: AdjustableLog,
  setLimits: (limits: LimitChange) => void,
) {
  const changed: SettingChange[] = [];
  const refused: SettingChange[] = [];
  const [from, to] = [live.command.join(' '), next.command.join(' ')];
  if (from !== to) refused.push({ flag: '', field: 'command', from, to });
  live.settings = live.settings.map((running) => {
    const setting = next.settings.find(({ flag }) => flag === running.flag);
    // The origin may have changed, even if the value is the same.
    if (setting === undefined || setting.text === running.text) return setting ?? running;
    const { flag, origin, text } = setting;
    const { field = setting.field } = origin;
    (setting.live ? changed : refused).push({ flag, field, from: running.text, to: text });
    if (!setting.live) return running;
    const { limits } = next.sink.options;
    const limit = LIVE_LIMITS.find((each) => LIMIT_NAMES[each] === flag);
    if (limit === undefined) {
      const name = fieldName(flag) as keyof GlobalOptions;
      Object.assign(live.globals, { [name]: next.globals[name] });
      if (flag === 'v') log.setVerbosity(next.globals.v);
    } else if (limits !== undefined) setLimits({ [limit]: limits[limit] });
    return setting;
  });
  return { changed, refused };
}

/**
 * Reads a configuration file again whenever it changes. Live settings take effect at once; events report what
 * changed, what takes effect only at the next start, and errors.
 */
export function followConfig(
  { path, read }: NonNullable<Live['config']>,
  live: Live,
  setLimits: (limits: LimitChange) => void,
) {
  /** The last report, since the file changes more often than its settings; undefined: the next one is new. */
  let reported: string | undefined = '[]';
  const isNew = (summary: string): boolean => {
    const isSame = summary === reported;
    reported = summary;
    return !isSame;
  };
  const fail = (error: unknown): void => {
    if (!(error instanceof KpngError)) throw error;
    if (isNew(error.message)) configFailed.publish({ path, error });
  };
  const watcher = watchFile({
    path,
    kind: CONFIG_FILE,
    limits: CONFIG_LIMITS,
    clock: systemClock,
    onContent(bytes) {
      try {
        const adopted = adopt(live, read(bytes), live.log, setLimits);
        const news = isNew(JSON.stringify(adopted.refused)) || adopted.changed.length > 0;
        if (news) configReloaded.publish({ path, ...adopted });
      } catch (error) {
        fail(error);
      }
    },
    onError: fail,
    onRecovered: () => watcher.again(),
  });
  return {
    ...watcher,
    /** Reads the file again, even if it appears unchanged. */
    again: () => {
      reported = undefined;
      watcher.again();
    },
  };
}

/**
 * The content of the page /configz: the settings in force, one document of each kind. kube-proxy's document has the
 * same key as on its own page, and only the fields that apply here. `verbosity` is the current log verbosity, which
 * may be changed without a file.
 */
export function configz(
  { settings, command }: Pick<Live, 'settings' | 'command'>,
  verbosity: number,
) {
  const valueOf = ({ flag, value }: EffectiveSetting) => (flag === 'v' ? verbosity : value);
  const byFlag = new Map(settings.map((setting) => [setting.flag, valueOf(setting)]));
  return {
    'kubeproxy.config.k8s.io': {
      apiVersion: KUBE_PROXY_API_VERSION,
      kind: KUBE_PROXY_KIND,
      mode: 'userspace',
      ...kubeProxyFields(KUBE_PROXY_FIELDS, byFlag),
    },
    'kpng-userspace': {
      apiVersion: OWN_API_VERSION,
      kind: OWN_KIND,
      [OWN_COMMAND]: command.join(' '),
      ...Object.fromEntries(settings.map((setting) => [setting.field, valueOf(setting)])),
    },
  };
}

function kubeProxyFields(
  rules: FieldRules,
  byFlag: ReadonlyMap<string, unknown>,
): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [name, rule] of Object.entries(rules)) {
    if (rule.kind === 'flag' && byFlag.has(rule.flag)) fields[name] = byFlag.get(rule.flag);
    if (rule.kind !== 'object') continue;
    const within = kubeProxyFields(rule.fields, byFlag);
    if (Object.keys(within).length > 0) fields[name] = within;
  }
  return fields;
}
