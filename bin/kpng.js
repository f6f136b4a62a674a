#!/usr/bin/env node
// The name that command lines of kpng have.
import { start } from './start.js';

await start([]);
