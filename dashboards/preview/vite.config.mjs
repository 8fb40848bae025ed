import { defineConfig } from 'vite';

// The page asks the Prometheus of preview.py through its own origin.
const proxy = {
  '/prometheus': {
    target: process.env.PROMETHEUS_URL ?? 'http://127.0.0.1:9090',
    rewrite: (path) => path.replace(/^\/prometheus/, ''),
  },
};

export default defineConfig({
  // Grafana's packages read process.env and global, as they would under webpack.
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'globalThis' },
  build: {
    outDir: '../../build/preview',
    emptyOutDir: true,
    chunkSizeWarningLimit: 20_000,
    // @grafana/plugin-compat asks for exports that older versions have, to see which version it is in.
    rolldownOptions: { shimMissingExports: true },
  },
  preview: { host: '127.0.0.1', strictPort: true, proxy },
});
