import type { Health } from '../observe/health.ts';
import type { AdjustableLog } from '../observe/log.ts';
import type { DesiredServicePort } from '../proxier/wanted.ts';
import type { Proxier } from '../proxier/proxier.ts';
import type { Engine } from '../proxysocket/engine.ts';
import type { EngineLimits } from '../proxysocket/limits.ts';
import type { Clock } from '../util/clock.ts';
import type { HealthProblem } from '../observe/verdict.ts';

export interface ProblemView extends HealthProblem {
  readonly message: string;
  /** The first service port that it concerns. */
  readonly servicePort: string | null;
}

export interface ProxySubject {
  readonly engine: Required<Pick<Engine, 'kind' | 'snapshot' | 'names' | 'activity' | 'inspect'>>;
  readonly proxier: Pick<Proxier, 'drains' | 'drain' | 'undrain' | 'endpointsOf'>;
  readonly portal: string;
  readonly limits: EngineLimits;
  desired(): readonly DesiredServicePort[];
  problems(): readonly ProblemView[];
}

export interface ProcessSubject {
  readonly version: string;
  /** The words of the command, such as `file to-userspace`. */
  readonly command: string;
  /** The node that is served, if it is a single one. */
  readonly nodeName: string | undefined;
  readonly health: Health;
  readonly log: AdjustableLog;
  readonly clock: Clock;
  /** How long a draining process still accepts new clients after its health fails. Milliseconds. Default: 0. */
  drainDelayMs?(): number;
  /** Undefined until the sink has been started, and in a process that does not proxy. */
  proxy(): ProxySubject | undefined;
  /** Starts a graceful stop, as TERM does. Idempotent. */
  stop(): void;
}
