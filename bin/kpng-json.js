#!/usr/bin/env node
// kpng's example program: prints the local view of a kpng server as JSON.
import { start } from './start.js';

await start(['local', 'to-json']);
