// SPDX-License-Identifier: MIT
// Registries of the objects that the application holds handles of: a garbage or stale handle is found out, and an
// object that is destroyed while another thread uses it lives until that use ends. A real driver crashes at many such
// handles.
//
// A registry shares its objects with whoever found them. Threads: any. Errors: nullptr for what is no handle.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace hpe::soft {

template <class T>
class Registry {
public:
    void add(std::shared_ptr<T> object) {
        const std::unique_lock lock(mutex_);
        const void* key = object.get();
        live_.emplace(key, std::move(object));
    }
    std::shared_ptr<T> find(const void* handle) const {
        const std::shared_lock lock(mutex_);
        const auto at = live_.find(handle);
        return at == live_.end() ? nullptr : at->second;
    }
    std::shared_ptr<T> remove(const void* handle) {
        const std::unique_lock lock(mutex_);
        const auto at = live_.find(handle);
        if (at == live_.end()) return nullptr;
        std::shared_ptr<T> object = std::move(at->second);
        live_.erase(at);
        return object;
    }
    template <class Predicate>
    std::shared_ptr<T> find_if(Predicate wanted) const {
        const std::shared_lock lock(mutex_);
        for (const auto& [handle, object] : live_)
            if (wanted(*object)) return object;
        return nullptr;
    }
    template <class Use>
    void each(Use use) {
        const std::shared_lock lock(mutex_);
        for (const auto& [handle, object] : live_) use(*object);
    }
    template <class Predicate>
    std::vector<std::shared_ptr<T>> remove_if(Predicate predicate) {
        const std::unique_lock lock(mutex_);
        std::vector<std::shared_ptr<T>> removed;
        for (auto at = live_.begin(); at != live_.end();) {
            if (predicate(*at->second)) {
                removed.push_back(std::move(at->second));
                at = live_.erase(at);
            } else {
                ++at;
            }
        }
        return removed;
    }

private:
    mutable std::shared_mutex mutex_;
    std::unordered_map<const void*, std::shared_ptr<T>> live_;
};

}  // namespace hpe::soft
